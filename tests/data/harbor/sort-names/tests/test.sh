#!/bin/bash
. /tests/score.sh
printf '{"reward": %s, "lines": %s}\n' "$(score)" "$(grep -c "" sorted.txt)" > /logs/verifier/reward.json
