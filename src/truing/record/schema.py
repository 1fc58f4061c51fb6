"""The columns of recorded samples: a row each, with a list per stream and a scalar per fact.

IPC segments and Parquet files have the same schema. NaN stays NaN. A stream without any number in the step is
null, as are ``support_*`` of a sample whose sampling parameters truncate nothing, and ``routes*`` of one
without expert routes. Streams of passes have the tokens of the sample's first pass, then those of its second,
and so on. A segment without any route has no column for them.
"""

import pyarrow as pa
import torch

from truing.types.passes import PASS_COLUMNS, PASS_STREAMS
from truing.types.sample import FLOAT_STREAMS, MASKS

SUPPORT = {"support_ids": (pa.int32(), torch.int32), "support_splits": (pa.int64(), torch.int64)}
ROUTES = {  # flat, and their shape: layers, experts per token
    "routes": (pa.int16(), torch.int16),
    "routes_shape": (pa.int64(), torch.int64),
}
LIST_COLUMNS = {
    "token_ids": (pa.int64(), torch.int64),
    "origin": (pa.uint8(), torch.uint8),
    "excluded": (pa.uint8(), torch.uint8),
    **dict.fromkeys(MASKS, (pa.bool_(), torch.bool)),
    **dict.fromkeys((*FLOAT_STREAMS, *PASS_STREAMS), (pa.float32(), torch.float32)),
    **dict.fromkeys(PASS_COLUMNS, (pa.int64(), torch.int64)),
    **SUPPORT,
    **ROUTES,
}
SAMPLE_SCALARS = {  # scalars of ``SampleFacts``
    "sample_id": pa.string(),
    "rollout_id": pa.string(),
    "group_id": pa.string(),
    "task_id": pa.string(),
    "family": pa.string(),
    "prompt_hash": pa.string(),
    "prompt_length": pa.int64(),
    "old_source": pa.string(),
    "reward": pa.float64(),
    "truncated": pa.bool_(),
    "bootstrap_value": pa.float64(),
    "text": pa.string(),
    "status": pa.string(),
    "ended_by": pa.string(),
    "error": pa.string(),
}
TURN = pa.struct(
    {
        "start": pa.int64(),
        "end": pa.int64(),
        "finish_reason": pa.string(),
        "sampler_version": pa.int64(),
        "weight_digest": pa.string(),
        "reward": pa.float64(),
        "call": pa.int64(),
    }
)
JSON_COLUMNS = ("sampling_params", "reward_parts", "messages", "outcome")
SCHEMA = pa.schema(
    {
        "stage": pa.string(),
        "step": pa.int64(),
        **SAMPLE_SCALARS,
        **dict.fromkeys(JSON_COLUMNS, pa.string()),
        "turns": pa.list_(TURN),
        **{name: pa.list_(arrow) for name, (arrow, _) in LIST_COLUMNS.items()},
    }
)

SCHEMA_WITHOUT_ROUTES = pa.schema([field for field in SCHEMA if field.name not in ROUTES])


def check_schema(schema: pa.Schema) -> None:
    """Raise ValueError unless a file has the columns of rows, with routes or without."""
    if not (schema.equals(SCHEMA) or schema.equals(SCHEMA_WITHOUT_ROUTES)):
        raise ValueError("its columns are those of another version of Truing, or of no run")


def with_routes(table: pa.Table) -> pa.Table:
    """Return a table with all columns: null for routes that its file does not have."""
    for name in ROUTES:
        if name not in table.schema.names:
            field = SCHEMA.field(name)
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table
