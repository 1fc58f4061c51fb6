"""Temporary."""

from truing.endpoint.calls import CallRefused


def check_wanted(wanted, sampling_params, override):
    refused = [name for name in wanted if name not in override]
    if refused:
        raise CallRefused(400, f"{refused} differ")
    return list(wanted)
