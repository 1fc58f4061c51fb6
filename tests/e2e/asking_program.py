"""A program that asks three times, and once for a title."""

from openai import OpenAI


def run(task, base_url, key):
    with OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=60) as client:

        def ask(messages):
            answer = client.chat.completions.create(model="policy", messages=messages)
            return answer.choices[0].message.content

        messages = [dict(message) for message in task.messages]
        for _ in range(3):
            messages.append({"role": "assistant", "content": ask(messages)})
            messages.append({"role": "user", "content": "again"})
        ask([{"role": "system", "content": "Title:"}, {"role": "user", "content": messages[1]["content"]}])
        return messages[-2]["content"]
