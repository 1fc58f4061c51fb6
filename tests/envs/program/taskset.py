"""A taskset of verifiers with a harness of its own, and a run of one of its tasks."""

import textwrap

from truing.envs.program_env import Access

TASKSET = textwrap.dedent('''
    import sys

    import verifiers.v1 as vf

    __all__ = ["Notes", "Asker"]

    ASK = """
    import json, sys, urllib.request
    endpoint, secret, question = sys.argv[1:]
    body = {"model": "policy", "messages": [{"role": "user", "content": question}]}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + secret}
    request = urllib.request.Request(endpoint + "/chat/completions", json.dumps(body).encode(), headers)
    said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    open("note.txt", "w").write(said)
    """

    class Asker(vf.Harness[vf.HarnessConfig]):
        NEEDS_CONTAINER = False

        async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
            command = [sys.executable, "-c", ASK, endpoint, secret, data.prompt]
            return await runtime.run_program(command, {})

    class Note(vf.Task[vf.TaskData]):
        @vf.reward(weight=2.0)
        async def right(self, trace: vf.Trace) -> float:
            return float(trace.last_message.content == self.data.prompt.split()[-1])

        @vf.reward(weight=0.5)
        async def short(self, trace: vf.Trace) -> float:
            return float(len(trace.last_message.content) < 4)

        @vf.metric
        async def written(self, runtime) -> float:
            return float(len(await runtime.read("note.txt")))

    class Notes(vf.Taskset[Note]):
        def load(self):
            return (Note(vf.TaskData(prompt=f"Note the number {i}")) for i in range(12))
''')


def run(env, model, task, said):
    model.replies += [{"content": said}]
    return env.run(task, Access(f"http://127.0.0.1:{model.server_port}", "the-key"), "r")
