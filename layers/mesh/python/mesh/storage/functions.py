"""Owns calling a deployed function by its name, with AWS's own permission.

Refuses to be used by the system itself: functions ring queues, they do not call each other. Only an
operator's command line does, where no token exists yet.
"""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session


class FunctionCallError(Exception):
    """The function could not be called, or crashed. The message says what to look at."""


def call_function(
    name: str, event: dict[str, Any], *, region: str | None = None, client: Any = None
) -> dict[str, Any]:
    """The function's answer. `client` is a Lambda client, made when there is none. Raises
    FunctionCallError."""
    try:
        client = client or get_session().create_client("lambda", region_name=region)
        answer = client.invoke(FunctionName=name, Payload=json.dumps(event).encode())
        document = json.loads(answer["Payload"].read())
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "an error")
        raise FunctionCallError(f"AWS refused to invoke {name}: {code}") from None
    except (BotoCoreError, ValueError) as error:
        raise FunctionCallError(
            f"{name} could not be invoked ({type(error).__name__}); check region and credentials"
        ) from None
    if "FunctionError" in answer or not isinstance(document, dict):
        raise FunctionCallError(f"{name} failed; its log says why")
    return document
