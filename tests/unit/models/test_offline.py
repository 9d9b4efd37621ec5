"""The built-in model keeps the same contract, without an API."""

from __future__ import annotations

from mesh.kernel.limits import OFFLINE_QUOTE_CHARACTERS
from mesh.models import tokens
from mesh.models.contract import ModelConnector, ModelRequest, Stop, Text, ToolChoice
from mesh.models.offline import OfflineModel
from tests.unit.models.apis import request, user


def asked(question: str) -> ModelRequest:
    return ModelRequest(
        model=None, system="", turns=(user("framed"),), question=question, max_output_tokens=1
    )


def test_it_quotes_the_question_and_says_that_no_model_read_it() -> None:
    model: ModelConnector = OfflineModel()
    answer = model.answer(asked("What is an ibex?"), 0.0)
    assert answer.text.startswith("I am Mesh's offline model")
    assert answer.text.endswith("\n\nWhat is an ibex?")
    assert answer.keep == (Text(answer.text),)


def test_it_quotes_no_more_than_it_says() -> None:
    answer = OfflineModel().answer(asked("i" * (OFFLINE_QUOTE_CHARACTERS + 1)), 1.0)
    assert answer.text.endswith("i" * OFFLINE_QUOTE_CHARACTERS + "…")


def test_it_calls_nothing_whatever_is_offered() -> None:
    for choice in ToolChoice:
        answer = OfflineModel().answer(request(tool_choice=choice), 1.0)
        assert (answer.calls, answer.stop, answer.calls_left_out) == ((), Stop.END, 0)


def test_its_tokens_are_taken_from_the_length() -> None:
    question = request()
    usage = OfflineModel().answer(question, 1.0).usage
    assert usage.estimated
    assert usage.input_tokens == tokens.of_request(question) > 0
    assert usage.output_tokens > 0
