# SPDX-License-Identifier: Apache-2.0
"""What OpenNebula's refusals mean. The texts are its own."""

import xmlrpc.client

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyone import (
    OneActionException,
    OneAuthenticationException,
    OneAuthorizationException,
    OneException,
    OneInternalException,
    OneNoExistsException,
)

from simyard_sites.base import (
    CapacityExhaustedError,
    ConflictError,
    ErrorScope,
    InternalError,
    InvalidSpecError,
    MachineNotFoundError,
    PermissionDeniedError,
    QuotaExhaustedError,
    SiteError,
    UnauthenticatedError,
    UnavailableError,
)
from simyard_sites.opennebula.errors import make_call_error, make_change_error, make_creation_error
from simyard_sites.opennebula.wire import (
    MalformedAnswerError,
    OneAllocateException,
    OneLockedException,
    RpcCall,
    decode,
    decode_all,
    encode,
    encode_all,
)

CREATE = "[one.template.instantiate] "


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (
            OneAuthorizationException(CREATE + "User [2] : The number of VMs (11) exceeds the limit of 10 reached."),
            QuotaExhaustedError,
            "limit of 10",
        ),
        (
            OneAuthorizationException(CREATE + "User [2] : user [2] limit of 1 reached for VMS quota in VM.."),
            QuotaExhaustedError,
            "Raise the quota",
        ),
        (
            OneAuthorizationException(CREATE + "User [2] : Not authorized to perform USE TEMPLATE [0]."),
            PermissionDeniedError,
            "spec.provider.openNebula.credentialsSecretRef",
        ),
        (
            OneAuthorizationException(CREATE + "User [2] : VM Template includes a restricted attribute NIC."),
            PermissionDeniedError,
            "VM_RESTRICTED_ATTR",
        ),
        (
            OneAuthenticationException(CREATE + "User couldn't be authenticated, aborting call."),
            UnauthenticatedError,
            "`password`",
        ),
        (
            OneAllocateException(
                CREATE + "Error allocating a new virtual machine. DISK 0: User 2 does not own an image with name: "
                "debain . Set IMAGE_UNAME or IMAGE_UID of owner in DISK."
            ),
            InvalidSpecError,
            "spec.images.openNebula",
        ),
        (
            OneAllocateException(
                CREATE + "Error allocating a new virtual machine. User 2 does not own a network with name: privat . "
                "Set NETWORK_UNAME or NETWORK_UID of owner in NIC."
            ),
            InvalidSpecError,
            "spec.provider.openNebula.networks",
        ),
        (
            OneAllocateException(
                CREATE + "Error allocating a new virtual machine. Cannot get IP/MAC lease from virtual network 0."
            ),
            CapacityExhaustedError,
            "address range",
        ),
        (OneNoExistsException(CREATE + "Error getting virtual machine template [9]."), InvalidSpecError, "template"),
        (
            OneInternalException(CREATE + "Parse error: syntax error, unexpected VARIABLE at line 1, columns 4:5"),
            InvalidSpecError,
            "template",
        ),
        (OneInternalException(CREATE + "Internal Error: database is locked"), InternalError, "database"),
        (OneException("fault -503: RpcCall is not of type integer"), InternalError, "-503"),
        (OneException("Cannot process request, no leader found"), UnavailableError, "leader"),
    ],
)
def test_a_refused_create_becomes_the_error_that_says_what_to_do(
    error: Exception, kind: type[SiteError], says: str
) -> None:
    found = make_creation_error(error, "debain")
    assert type(found) is kind
    assert says in str(found)


@given(st.text())
def test_the_name_of_an_image_does_not_make_its_absence_a_matter_of_the_site(name: str) -> None:
    said = f"Error allocating a new virtual machine. DISK 0: User 0 does not own an image with name: {name} . Set ..."
    found = make_creation_error(OneAllocateException(CREATE + said), name or "0")
    assert (type(found), found.scope) == (InvalidSpecError, ErrorScope.POOL)


def test_what_a_state_forbids_is_a_conflict_of_that_machine() -> None:
    error = make_change_error(OneActionException("[one.vm.action] ... wrong state PROLOG."), "MANAGE")
    assert type(error) is ConflictError and error.scope is ErrorScope.ITEM
    assert type(make_change_error(OneLockedException("is locked"), "MANAGE")) is ConflictError
    assert type(make_change_error(OneNoExistsException("gone"), "MANAGE")) is MachineNotFoundError


def test_a_missing_right_is_named() -> None:
    error = make_call_error(OneAuthorizationException("Not authorized to perform MANAGE VM [1]."), "MANAGE its VMs")
    assert str(error).endswith("The account needs the right to MANAGE its VMs")


def answer(*values: object) -> bytes:
    return xmlrpc.client.dumps((list(values),), methodresponse=True).encode()


@given(st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"], exclude_characters="\ufffe\uffff")))
def test_answers_come_back_intact(text: str) -> None:
    assert decode(answer(True, text, 0)) == text
    assert decode_all(answer([[True, text, 0]], [[True, 7, 0]]), 2) == [text, 7]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (0x0100, OneAuthenticationException),
        (0x0200, OneAuthorizationException),
        (0x0400, OneNoExistsException),
        (0x0800, OneActionException),
        (0x2000, OneInternalException),
        (0x4000, OneAllocateException),
        (0x8000, OneLockedException),
        (0x10000, OneException),
    ],
)
def test_codes_become_pyones_exceptions(code: int, kind: type[Exception]) -> None:
    for found in (decode(answer(False, "why", code, -1)), *decode_all(answer([[False, "why", code, -1]]), 1)):
        assert type(found) is kind
        assert str(found) == "why"


def test_faults_fail_their_call_alone_or_all_of_them() -> None:
    fault = xmlrpc.client.Fault(-501, "wrong <type>")
    whole = xmlrpc.client.dumps(fault).encode()
    assert "wrong <type>" in str(decode(whole))
    assert [type(each) for each in decode_all(whole, 2)] == [OneException, OneException]
    mixed = decode_all(answer([[True, 1, 0]], {"faultCode": -501, "faultString": "no"}), 2)
    assert mixed[0] == 1
    assert isinstance(mixed[1], OneException)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Welcome to nginx</body></html>",
        b"<html><br></html>",
        b"<methodResponse><params/></methodResponse>",
        answer("no", "success", "flag"),
        answer(True),
        answer(True, "cut", 0)[:-20],
        b"<methodResponse><params><param><value><int>x</int></value></param></params></methodResponse>",
        b"<methodResponse><params><param><value><odd>x</odd></value></param></params></methodResponse>",
    ],
)
def test_what_is_no_answer_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        decode(body)


def test_fewer_answers_than_calls_are_no_answer() -> None:
    with pytest.raises(MalformedAnswerError):
        decode_all(answer([[True, 1, 0]]), 2)


def test_entities_are_not_expanded() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "boom">]>' + answer(True, "ENTITY", 0).split(b"?>")[1].replace(b"ENTITY", b"&a;")
    assert "boom" not in str(decode(bomb))


def test_calls_carry_the_session_first() -> None:
    calls = [RpcCall("one.vm.action", ("resume", 0)), RpcCall("one.vm.info", (1, False))]
    assert xmlrpc.client.loads(encode(calls[0], "u:p")) == (("u:p", "resume", 0), "one.vm.action")
    [entries], method = xmlrpc.client.loads(encode_all(calls, "u:ü<&>"))
    assert method == "system.multicall"
    assert entries == [
        {"methodName": "one.vm.action", "params": ["u:ü<&>", "resume", 0]},
        {"methodName": "one.vm.info", "params": ["u:ü<&>", 1, False]},
    ]
