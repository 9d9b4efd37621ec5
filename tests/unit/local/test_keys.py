"""The embedded KMS opens a blob under its own key, state and context, and not otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

MakeCloud = Callable[..., Any]
CONTEXT = {"owner_id": "agt_1", "name": "signing"}


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def test_a_data_key_opens_under_its_own_context_and_no_other(cloud: MakeCloud) -> None:
    here = cloud()
    key = here.aws.create_key("secrets")
    made = here.kms.generate_data_key(
        KeyId="alias/secrets", KeySpec="AES_256", EncryptionContext=CONTEXT
    )
    opened = here.kms.decrypt(CiphertextBlob=made["CiphertextBlob"], EncryptionContext=CONTEXT)
    assert opened["Plaintext"] == made["Plaintext"]
    assert opened["KeyId"] == key
    assert len(made["Plaintext"]) == 32
    for other in ({}, {**CONTEXT, "owner_id": "agt_2"}, {**CONTEXT, "more": "x"}):
        with pytest.raises(ClientError) as caught:
            here.kms.decrypt(CiphertextBlob=made["CiphertextBlob"], EncryptionContext=other)
        assert code_of(caught) == "InvalidCiphertextException"


def test_a_changed_or_foreign_blob_is_refused(cloud: MakeCloud) -> None:
    here = cloud()
    here.aws.create_key("secrets")
    other = here.aws.create_key("other")
    blob = here.kms.encrypt(KeyId="alias/secrets", Plaintext=b"x")["CiphertextBlob"]
    for changed in (blob[:-1] + bytes([blob[-1] ^ 1]), b"x" * 40, blob[:20]):
        with pytest.raises(ClientError) as caught:
            here.kms.decrypt(CiphertextBlob=changed)
        assert code_of(caught) == "InvalidCiphertextException"
    with pytest.raises(ClientError) as caught:
        here.kms.decrypt(CiphertextBlob=blob, KeyId=other)
    assert code_of(caught) == "IncorrectKeyException"


def test_a_disabled_key_refuses_until_it_is_enabled_again(cloud: MakeCloud) -> None:
    here = cloud()
    key = here.aws.create_key("secrets")
    blob = here.kms.encrypt(KeyId=key, Plaintext=b"x")["CiphertextBlob"]
    here.kms.disable_key(KeyId=key)
    for call in (
        lambda: here.kms.decrypt(CiphertextBlob=blob),
        lambda: here.kms.generate_data_key(KeyId=key, KeySpec="AES_256"),
        lambda: here.kms.encrypt(KeyId=key, Plaintext=b"x"),
    ):
        with pytest.raises(ClientError) as caught:
            call()
        assert code_of(caught) == "DisabledException"
    here.kms.enable_key(KeyId=key)
    assert here.kms.decrypt(CiphertextBlob=blob)["Plaintext"] == b"x"


def test_a_key_that_waits_for_deletion_refuses(cloud: MakeCloud) -> None:
    here = cloud()
    key = here.aws.create_key("secrets")
    blob = here.kms.encrypt(KeyId=key, Plaintext=b"x")["CiphertextBlob"]
    here.kms.schedule_key_deletion(KeyId=key)
    with pytest.raises(ClientError) as caught:
        here.kms.decrypt(CiphertextBlob=blob)
    assert code_of(caught) == "KMSInvalidStateException"
    here.kms.cancel_key_deletion(KeyId=key)
    here.kms.enable_key(KeyId=key)
    assert here.kms.decrypt(CiphertextBlob=blob)["Plaintext"] == b"x"


def test_re_encryption_moves_a_blob_to_another_key_without_showing_it(cloud: MakeCloud) -> None:
    here = cloud()
    old, new = here.aws.create_key("old"), here.aws.create_key("new")
    blob = here.kms.encrypt(KeyId=old, Plaintext=b"x", EncryptionContext=CONTEXT)["CiphertextBlob"]
    with pytest.raises(ClientError) as caught:
        here.kms.re_encrypt(CiphertextBlob=blob, DestinationKeyId=new)
    assert code_of(caught) == "InvalidCiphertextException"
    moved = here.kms.re_encrypt(
        CiphertextBlob=blob,
        SourceEncryptionContext=CONTEXT,
        DestinationKeyId=new,
        DestinationEncryptionContext=CONTEXT,
    )
    assert "Plaintext" not in moved
    here.kms.disable_key(KeyId=old)
    opened = here.kms.decrypt(CiphertextBlob=moved["CiphertextBlob"], EncryptionContext=CONTEXT)
    assert (opened["Plaintext"], opened["KeyId"]) == (b"x", new)


def test_a_rotated_key_still_opens_what_it_made_before(cloud: MakeCloud) -> None:
    here = cloud()
    key = here.aws.create_key("secrets")
    blob = here.kms.encrypt(KeyId=key, Plaintext=b"x")["CiphertextBlob"]
    here.kms.rotate_key_on_demand(KeyId=key)
    assert here.kms.decrypt(CiphertextBlob=blob)["Plaintext"] == b"x"


def test_an_unknown_key_is_not_found(cloud: MakeCloud) -> None:
    with pytest.raises(ClientError) as caught:
        cloud().kms.encrypt(KeyId="alias/none", Plaintext=b"x")
    assert code_of(caught) == "NotFoundException"
