"""A secret in place of another file is for its owner alone, wherever a link there leads."""

import pytest

from poe.security.replacement import SUFFIX, replace_secret


def test_a_secret_is_for_its_owner_alone_though_others_could_read_what_was_there(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    replace_secret(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["secret", "secret" + SUFFIX])
def test_a_link_that_somebody_has_put_there_leads_no_secret_away(tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    (tmp_path / name).symlink_to(elsewhere)
    replace_secret(str(tmp_path / "secret"), b"new")
    assert (tmp_path / "secret").read_bytes() == b"new"
    assert elsewhere.read_bytes() == b"untouched"
    assert not (tmp_path / "secret").is_symlink()
    assert {each.name for each in tmp_path.iterdir()} == {"elsewhere", "secret"}
