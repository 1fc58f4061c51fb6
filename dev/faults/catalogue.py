"""Every known fault, and the rules that find it: ``python -m dev.faults.catalogue > docs/coverage.md``."""

from collections.abc import Mapping
from dataclasses import dataclass

from dev.faults.planted import FAULTS
from truing.doctor.rule import KINDS
from truing.doctor.rules import RULES


@dataclass(frozen=True)
class KnownFault:
    """A known fault, the rules that find it, and other checks or the reason why none can."""

    what: str
    codes: tuple[str, ...]
    also: str = ""


def _by(what: str, codes: str, also: str = "") -> KnownFault:
    return KnownFault(what, tuple(codes.split()), also)


FORWARD_CHECK = "refused before the first step: Truing's forward is proven to be the model's own"
CHECK = "`truing check RECIPE`"
RANKS = "refused before training, with what differs"
PUBLICATION = "refused at the publication, before anything is sampled with it"

CATALOGUE: Mapping[int, KnownFault] = {
    1: _by("the loss reads the prompt", "MSK001 MSK003 MSK007"),
    2: _by("the loss reads the output of tools or the environment", "MSK001 MSK003"),
    3: _by("a mask, or logits, one token off", "MSK003 RAT004 SMP005", FORWARD_CHECK),
    4: _by("a padding count is used as a position; the answer contains the prompt", "TOK005 MSK003 TOK004"),
    5: _by("the mask is placed by lengths from the wrong side", "MSK001 MSK002 MSK003"),
    6: _by("no positions or attention mask with left padding", "SMP005 SMP006", FORWARD_CHECK),
    7: _by("the stop token is not trained, since pad is eos", "MSK004 MSK002 MSK008"),
    8: _by("padding after the stop counts as tokens", "MSK005 SMP004"),
    9: _by("text is encoded again", "TOK001"),
    10: _by("prompt and answer are split in text, not in ids", "TOK001 TOK004"),
    11: _by("BOS doubled or lost", "TOK003 TOK001 SMP005", CHECK),
    12: _by("SFT and RL have two templates", "TPL002 TPL001", "refused before the first step"),
    13: _by("KL or loss on an unformatted prompt", "REF004 REF002 SMP005 TOK002"),
    14: _by(
        "a template re-renders earlier turns",
        "",
        f"no fault in Truing: a new sample begins, and `restarts` gives the reason; {CHECK} lists such turns",
    ),
    15: _by(
        "a prompt is cut without a message", "TOK002", f"{CHECK}: a prompt that does not fit is an error"
    ),
    16: _by("cut answers are rewarded as finished", "RWD001 LEN003"),
    17: _by("a temperature in sampler or trainer alone", "RAT002 SMP005 SMP004"),
    18: _by("a temperature that neither side's log-probabilities include", "SMP009 SMP007"),
    19: _by(
        "top-p, top-k or min-p in sampler or trainer alone, or in neither's log-probabilities",
        "SMP005 RAT002 SMP009 SMP007",
    ),
    20: _by("penalties count the prompt", "SMP004 SMP005 RAT002 SMP009 SMP007"),
    21: _by("another logits processor in sampling", "SMP004 RAT002 SMP009 SMP007"),
    22: _by("stops are banned for a while", "SMP005 RAT002 SMP009 SMP007"),
    23: _by("forced tokens count as the policy's", "TOK001 SMP004 MSK001"),
    24: _by("a grammar's choices are scored over the whole vocabulary", "SMP005 RAT002 SMP004"),
    25: _by("masks by token id, or of a whole action", "MSK002 MSK006"),
    26: _by("the sampler has older weights", "SMP002 SMP003 SMP004 RAT002 SMP009"),
    27: _by("the adapter never reached the sampler", "SMP003 SMP004"),
    28: _by("the sampler's number format rounds a change of weights away", "SMP003"),
    29: _by(
        "an engine's own noise",
        "RAT002",
        "no fault: the null of other comparisons, measured with the step",
    ),
    30: _by("old log-probabilities are zeros", "RAT001"),
    31: _by("old log-probabilities are recomputed before each optimizer step", "RAT003"),
    32: _by("the surrogate has no gradient", "MSK003 OPT005 OPT006 OPT009"),
    33: _by("old log-probabilities belong to other rows", "RAT005 RAT004 RAT008"),
    34: _by("noise is added to weights", "OPT002 OPT003"),
    35: _by("dropout in the loss's forward", "RAT002 RAT008 SMP005 OPT009"),
    36: _by("a sequence ratio in place of a token ratio", "MSK003 VAL003"),
    37: _by(
        "groups of equal reward", "ADV004", "`truing why` splits them: solved, too hard, not paid, alike"
    ),
    38: _by("equal rewards have advantages from rounding", "ADV003"),
    39: _by("noise becomes full advantages", "ADV007"),
    40: _by("groups are mixed", "ADV001 ADV008 ADV009 TOK002"),
    41: _by("the standard deviation is that of another set", "ADV001 ADV002 ADV009"),
    42: _by("GAE is whitened inside one rollout", "ADV005"),
    43: _by("GAE bootstraps where it must not", "ADV006"),
    44: _by(
        "the verifier is dead",
        "RWD006 RWD004",
        f"{CHECK}: demonstrations must get the full reward, other answers less",
    ),
    45: _by("rewards are on other rows", "RWD014 RWD002"),
    46: _by("grading the same answer again gives another reward", "RWD002", CHECK),
    47: _by(
        "the reward is hacked",
        "",
        "`truing why`, with a second reward function in `eval.grader`; without it, it looks like progress",
    ),
    48: _by("the KL has the wrong sign, or its two sides are exchanged", "MSK003 KLD001 KLD002"),
    49: _by(
        "k3 in the loss has another gradient than the KL",
        "",
        "declared, not measured: kl.estimator names the gradient, and MSK003 checks it",
    ),
    50: _by("the reference follows the policy", "REF001 REF003", "digests at checkpoints and syncs"),
    51: _by("the reference is another model", "REF002 REF004"),
    52: _by("the KL is not 0 before the first step", "REF002"),
    53: _by("the value head is not trained", "VAL001"),
    54: _by("the entropy bonus has the wrong sign", "MSK003 OPT006"),
    55: _by("entropy collapses", "LEN002", "the cause needs an experiment"),
    56: _by("the loss is divided by another number", "MSK003 MSK007 VAL003 OPT009"),
    57: _by(
        "steps are too large or too small",
        "OPT003 OPT004 OPT008 OPT009 OPT010",
        "`truing why`: optimizer steps are too small",
    ),
    58: _by("the optimizer step is missing", "OPT001 OPT003 OPT009"),
    59: _by("the clipped share ignores the advantage's sign", "RAT006"),
    60: _by("bad rollouts are masked whole", "MSK006 MSK002"),
    61: _by("a tool has two names", "TOL001", CHECK),
    62: _by(
        "answers of one token", "LEN004 LEN001", "the audit (SMP007) distinguishes a policy from a processor"
    ),
    63: _by("rows, a batch or its tasks are trained repeatedly", "OPT011 OPT012 SMP010"),
    64: _by("rollouts share random numbers", "SMP008 OPT012"),
    65: _by("evaluation tasks are trained", "RWD007", "an environment whose splits share one is refused"),
    66: _by("rejection sampling keeps answers below the threshold", "RWD008"),
    67: _by("turns end differently from the record: an undeclared stop, a limit off by one", "LEN005 MSK004"),
    68: _by(
        "a stage has a system message, examples or tools that another lacks",
        "TPL003",
        f"{CHECK}; refused before the first step if demonstrations or tasks differ",
    ),
    69: _by("rewards are clipped, scaled or shifted after grading", "RWD009 RWD014"),
    70: _by("a branch of a tree sees a little of another", "SMP006 SMP005 RAT002"),
    71: _by("a gradient is lost, doubled or negated before the step, even once", "OPT014 OPT009"),
    72: _by("no token is trained in the whole run", "MSK009"),
    73: _by("a gate skips every step", "OPT013"),
    74: _by("an engine lacks the adapter, a layer of it, or scales it otherwise", "SMP011", PUBLICATION),
    75: _by("an engine has weights, or keys and values, of an earlier publication", "SMP011", PUBLICATION),
    76: _by("an engine's tied output head is an old copy", "SMP011", PUBLICATION),
    77: _by("an engine rounds or quantizes weights, or merges an adapter in bfloat16", "SMP011", PUBLICATION),
    78: _by("an engine's base is another one, or drifts", "SMP011", PUBLICATION),
    79: _by("an engine adapts a layer that the trainer does not", "SMP011", PUBLICATION),
    80: _by(
        "an engine's log-probabilities are raw, of its own parameters, rounded, or of other tokens",
        "SMP011",
        PUBLICATION,
    ),
    81: _by(
        "an engine's ids are other ones, or its answers are exchanged or cached",
        "SMP011 SMP009 SMP008 RAT002",
        PUBLICATION,
    ),
    82: _by("an engine stops at an id that nobody declared", "LEN005", "its answer is refused"),
    83: _by("an answer spans a publication", "", "its answer is refused"),
    84: _by("an engine returns NaN", "", "its answer is refused, with the token"),
    85: _by(
        "an engine loses or changes weights after their publication was proven",
        "SMP011 RAT002 SMP004",
        "refused at the next publication",
    ),
    86: _by("an engine decodes with other weights than it reads prompts with", "SMP011", PUBLICATION),
    87: _by("an engine cuts prompts, or reads them with another window or positions", "SMP011", PUBLICATION),
    88: _by("expert routes are off by one token", "SMP012", PUBLICATION),
    89: _by("expert routes are those of another sample", "SMP012"),
    90: _by("scores of replayed experts are read after all others were set to 0", "SMP012"),
    91: _by("each rank divides the loss by its own tokens or rows", "DST003 MSK003 MSK007"),
    92: _by("gradients are averaged over ranks, not summed", "OPT014"),
    93: _by("a rank skips rows, or computes those of another", "DST002 OPT011"),
    94: _by(
        "a rank has a stale or another reference", "DST001 REF004", "refused if a sync does not reach a shard"
    ),
    95: _by(
        "a rank has other random numbers, tasks or minibatches",
        "DST001 SMP009",
        "refused before rows or tasks that differ are computed",
    ),
    96: _by("a rank has other code, libraries, recipe, data or initial weights", "", RANKS),
    97: _by("each rank clips by a norm of its own", "DST004 OPT008"),
    98: _by(
        "the critic's gradient is not summed over ranks, or replicas have different critics", "OPT014 DST001"
    ),
    99: _by("a rank has other weights, learning rates or advantages, or an older sampler", "DST001"),
    100: _by("a resumed schedule begins again", "OPT004 DST001"),
    101: _by(
        "a resume restores weights and not the optimizer's state, the reverse, or not the weights of terms",
        "OPT010 OPT002 OPT017",
    ),
    102: _by(
        "evaluations have other sampling parameters, random numbers, weights or means than declared",
        "",
        "refused: each evaluation is compared with the recipe",
    ),
    103: _by("tasks are left out, repeated within an epoch, or not shuffled", "SMP013"),
    104: _by("the KL or the value loss leaves out sampled tokens", "MSK002"),
    105: _by(
        "an engine has weights where those of another layer, part or head belong", "SMP011", PUBLICATION
    ),
    106: _by("an engine adds an adapter to those before it", "SMP011", PUBLICATION),
    107: _by(
        "an engine computes something else after a prompt that its prefix cache holds", "SMP011", PUBLICATION
    ),
    108: _by(
        "an engine leaves out the stop id, or reports another finish reason",
        "LEN005",
        "its answer is refused",
    ),
    109: _by(
        "other weights train than the recipe declares: fewer, more, of another shape, dtype or scale",
        "OPT018",
    ),
    110: _by("weights are rounded or changed between the model's files and the first step", "OPT018"),
    111: _by("a resumed run has another reference", "REF001 REF003"),
    112: _by("a rollout has replies or a final state of another one, or changed ones", "TOL002"),
    113: _by("the engine reads other ids before a later turn than are trained", "TOK001 SMP004"),
    114: _by("a truncation or a penalty is wrong in sampler and trainer alike", "SMP004 SMP005"),
    115: _by("demonstrations are those of other tasks, empty, cut or doubled", "TOK007 MSK008"),
    116: _by("the supervised loss has an undeclared term", "MSK007 OPT006"),
    117: _by("the value loss's gradient does not reach a trunk, or not as it is", "OPT006"),
    118: _by("values, or the one after a truncated end, are read at another token", "VAL004"),
    119: _by(
        "a checkpoint has other weights or moments than the last step left", "", "refused when it is written"
    ),
    120: _by(
        "rate, clip or a term of the loss is as declared in some optimizer steps, or for some weights, alone",
        "OPT003 OPT008 MSK003",
    ),
    121: _by("recorded means or losses are not those of the recorded samples", "RWD011"),
    122: _by("turns begin with the forced prefix more or less often than declared", "SMP013"),
    123: _by(
        "an answer of a program is trained twice, not at all, for another rollout, or though it is left out",
        "MSK011",
    ),
    124: _by("a program that crashed has a reward", "RWD013"),
    125: _by("a program reads another answer than the policy gave", "TOL003"),
    126: _by("a program's request is answered otherwise than it asks, or trained otherwise", "TOL004"),
}
"""Known faults by the numbers that planted faults refer to."""


def page() -> str:
    """Return docs/coverage.md."""
    planted: dict[int, list[str]] = {number: [] for number in CATALOGUE}
    for fault in FAULTS.values():
        for number in fault.numbers:
            planted[number].append(fault.name + (f" ({', '.join(fault.seen)})" if fault.seen else ""))
    kinds = "; ".join(f"{kind}: {text}" for kind, text in KINDS.items())
    rows = [_row(number, known, planted[number]) for number, known in CATALOGUE.items()]
    without = sum(not known.codes for known in CATALOGUE.values())
    untried = sum(not names for names in planted.values())
    return "\n".join(
        [
            "# Which rule finds which fault",
            "",
            "<!-- Written by `python -m dev.faults.catalogue > docs/coverage.md`. -->",
            "",
            f"{len(CATALOGUE)} known faults; {len(CATALOGUE) - without} have rules,"
            f" {without} have a reason instead. {untried} are in no run of the detection matrix.",
            "",
            f"The letter after a rule is its kind. {kinds}.",
            "",
            "| | fault | rules | other checks | planted as (where others met it) |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _row(number: int, known: KnownFault, planted: list[str]) -> str:
    codes = ", ".join(f"[{code}](rules/{code}.md) ({RULES[code].kind})" for code in known.codes) or "–"
    return f"| {number} | {known.what} | {codes} | {known.also} | {', '.join(planted) or '–'} |"


if __name__ == "__main__":
    print(page(), end="")
