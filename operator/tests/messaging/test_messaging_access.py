# SPDX-License-Identifier: Apache-2.0
import base64
from pathlib import Path

import pytest

from simyard.messaging.access import BrokerAccess
from simyard.messaging.credentials import derive_password, make_master_key


def encoded(**values: str) -> dict[str, str]:
    return {key.replace("_crt", ".crt"): base64.b64encode(value.encode()).decode() for key, value in values.items()}


def test_a_secret_that_was_written_reads_back_the_same(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.crt"
    ca_file.write_text("the CA")
    access = BrokerAccess.from_url("amqps://us%40er:p%2Fw@broker:1234/a%2Fb", "https://broker:15671/", ca_file)
    assert (access.username, access.password, access.vhost, access.tls) == ("us@er", "p/w", "a/b", True)
    stored = {key: base64.b64encode(value.encode()).decode() for key, value in access.to_secret().items()}
    assert BrokerAccess.from_secret(stored) == access


def test_the_secret_of_a_rabbitmq_cluster_suffices() -> None:
    access = BrokerAccess.from_secret(encoded(host="b.ns.svc", port="5672", username="u", password="p", provider="x"))
    assert (access.port, access.vhost, access.tls) == (5672, "/", False)
    assert access.management_url == "http://b.ns.svc:15672"


def test_no_password_shows_in_a_representation_or_an_error() -> None:
    access = BrokerAccess.from_url("amqp://user:secret@host", "http://host")
    assert "secret" not in repr(access)
    with pytest.raises(ValueError, match="password is not base64") as caught:
        BrokerAccess.from_secret(encoded(host="h", username="u") | {"password": "%secret%"})
    assert "%secret%" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encoded(host="h", password="p"), "has no username"),
        (encoded(host="h", username="u", password="p", tls="true"), "tls must be true with ca.crt"),
        (encoded(host="h", username="u", password="p", ca_crt="CA", tls="false"), "tls must be true with ca.crt"),
        (encoded(host="h", username="u", password="p", port="amqp"), "port is not a number"),
    ],
)
def test_a_secret_that_cannot_work_is_refused_with_the_key(data: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BrokerAccess.from_secret(data)


@pytest.mark.parametrize("url", ["http://u:p@h", "amqp://h", "amqps://u:p@h", "amqp://u@h"])
def test_a_url_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="amqp"):
        BrokerAccess.from_url(url, "http://h")


def test_passwords_depend_on_the_user_and_the_key_alone() -> None:
    key = make_master_key()
    assert derive_password(key, "pool-1") == derive_password(key, "pool-1")
    assert (
        len(
            {
                derive_password(key, "pool-1"),
                derive_password(key, "pool-2"),
                derive_password(make_master_key(), "pool-1"),
            }
        )
        == 3
    )
    with pytest.raises(ValueError, match="at least 32"):
        derive_password(b"short", "pool-1")
