"""The prompt of a row of own data, and its demonstration."""

from collections.abc import Sequence

from truing.envs.conversations import Conversation
from truing.errors import DataError
from truing.types.message import AssistantMessage, Message

Demonstration = str | tuple[AssistantMessage, ...]

ONE_ANSWER = "text, or one message of the assistant"
ONE_ANSWER_REMEDY = "for several turns with tools, write an environment (`truing explain tasks`)"
SEVERAL_ANSWERS = "text, or messages of the assistant, one for each call that the program makes"
SEVERAL_ANSWERS_REMEDY = "leave out what the program says itself: results of tools, further questions"
ONE_DEMONSTRATION = "a prompt that ends with the user, or no completion"
ONE_DEMONSTRATION_REMEDY = "remove the assistant's turns that end the prompt, or the completion"
TRAINED = "a last message of the assistant that is to be trained"


def prompt_and_demonstration(
    read: Conversation, *, has_completion: bool, several_turns: bool = False
) -> tuple[tuple[Message, ...], Demonstration | None]:
    """Return the prompt of a row, and its demonstration: the completion, or a last message of the assistant.

    Args:
        read: the row; with ``has_completion`` its messages are those of the prompt, then the completion.
        has_completion: whether another column than the prompt's has the demonstration.
        several_turns: whether a completion may have several messages of the assistant, one for each turn.

    Raises:
        DataError: There is no prompt with a message of the user, or no one message that demonstrates.
    """
    messages = read.messages
    if has_completion:
        length = read.prompt_length
    elif several_turns:
        length = next((i for i, each in enumerate(messages) if each["role"] == "assistant"), len(messages))
    else:
        length = len(messages) - (messages[-1]["role"] == "assistant")
    prompt, answers = messages[:length], messages[length:]
    if several_turns and not has_completion:  # what tools and users say after it, a program says itself
        answers = tuple(each for each in answers if each["role"] == "assistant")
    roles = ", ".join(message["role"] for message in messages)
    if not any(message["role"] == "user" for message in prompt):
        raise DataError(
            f"{read.where} has no prompt that asks something",
            got=roles,
            expected="a message of the user in the prompt",
        )
    if has_completion and prompt[-1]["role"] == "assistant":
        raise DataError(
            f"{read.where} has two demonstrations: its prompt ends with an answer, beside the completion",
            got=roles,
            expected=ONE_DEMONSTRATION,
            remedy=ONE_DEMONSTRATION_REMEDY,
        )
    if (len(answers) > 1 and not several_turns) or any(each["role"] != "assistant" for each in answers):
        raise DataError(
            f"{read.where} has no completion that can be used",
            got=roles,
            expected=SEVERAL_ANSWERS if several_turns else ONE_ANSWER,
            remedy=SEVERAL_ANSWERS_REMEDY if several_turns else ONE_ANSWER_REMEDY,
        )
    if marked := sorted({*range(length, len(messages))} & read.untrained):
        raise DataError(
            f"{read.where} demonstrates a message that is marked as not to be trained",
            got=f"{messages[marked[0]]['content']!r:.100}",
            expected=TRAINED,
            remedy="leave the message out, or its mark",
        )
    return prompt, _demonstration(answers)


def message_texts(messages: Sequence[Message]) -> str:
    """Return the texts of messages except the system's, without case and spacing."""
    texts = [message["content"] for message in messages if message["role"] != "system"]
    return "\n".join(" ".join(text.casefold().split()) for text in texts)


def _demonstration(answers: Sequence[Message]) -> Demonstration | None:
    """Return messages of an assistant as a demonstration."""
    if not answers:
        return None
    first, *others = (AssistantMessage.of(answer) for answer in answers)
    return (first, *others) if others or first.calls or first.reasoning else first.content
