# SPDX-License-Identifier: Apache-2.0
"""The check of file lengths finds the files above the limit, and no others."""

from pathlib import Path

import file_lengths


def test_only_a_file_above_the_limit_is_found(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("x = 1\n" * 3)
    (tmp_path / "long.py").write_text("x = 1\n" * 4)
    assert file_lengths.find_long_files(tmp_path, ["short.py", "long.py", "deleted.py"], limit=3) == {"long.py": 4}


def test_the_licence_header_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "headed.py").write_text("# SPDX-License-Identifier: Apache-2.0\n" + "x = 1\n" * 3)
    (tmp_path / "script.py").write_text("#!/bin/python\n# SPDX-License-Identifier: Apache-2.0\n" + "x = 1\n" * 3)
    found = file_lengths.find_long_files(tmp_path, ["headed.py", "script.py"], limit=3)
    assert found == {"script.py": 4}


def test_the_files_of_this_tree_are_listed() -> None:
    listed = file_lengths.list_python_files(file_lengths.ROOT)
    assert {"hack/file_lengths.py", "operator/simyard/__init__.py"} <= set(listed)
    assert not [name for name in listed if name.startswith(".venv/")]
