"""mini-swe-agent, with the prompts of its command `mini`: its one tool is bash."""

import json
import sys

from minisweagent.agents.default import DefaultAgent
from minisweagent.config import get_config_from_spec
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

config = get_config_from_spec("mini.yaml")
config["agent"].pop("mode")
agent = DefaultAgent(
    LitellmModel(model_name="openai/gpt-5", **config["model"]),
    LocalEnvironment(**config["environment"]),
    **config["agent"],
)
result = agent.run(sys.argv[1])
print(json.dumps({"answer": result["submission"].strip()}))
