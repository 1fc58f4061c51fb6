"""Models of the Hugging Face hub."""

from pathlib import Path
from typing import cast

from huggingface_hub import is_offline_mode, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from truing.errors import ModelError
from truing.models.builtin import BUILTIN_MODELS
from truing.utils.format import first_line

FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
"""Files to download; no pickled weights."""

NETWORK_ERRORS = cast(tuple[type[Exception], ...], HfHubHTTPError.__bases__)  # declared as types
"""Errors of the hub's HTTP library, and ``OSError``."""

ABSENT = (
    "check the name; a private model needs a login: run `hf auth login`, or set HF_TOKEN to a token that may"
    " read it"
)


def download(name: str, revision: str | None) -> Path:
    """Return the local snapshot of a model; what its cache has is not downloaded again.

    Raises:
        ModelError: The hub has no such model or revision, asks for a login, or cannot be reached; or the
            files cannot be written.
    """
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=FILES))
    except GatedRepoError as error:
        terms = f"accept its terms at https://huggingface.co/{name}; then `hf auth login`, or set HF_TOKEN"
        raise _error("this model is gated: the hub asks for a login", name, error, terms) from error
    except RepositoryNotFoundError as error:
        raise _error("the hub has no such model, or it is private", name, error, ABSENT) from error
    except RevisionNotFoundError as error:
        at = f"{name} at {revision}"
        remedy = "set model.revision to a branch, tag or commit that it has"
        raise _error("the model has no such revision", at, error, remedy) from error
    except HFValidationError as error:
        raise _error("this is not the name of a model on the hub", name, error, ABSENT) from error
    except (LocalEntryNotFoundError, *NETWORK_ERRORS) as error:
        raise _not_fetched(name, error) from error


def _not_fetched(name: str, error: Exception) -> ModelError:
    """Return the error of a model that is neither in the cache nor can be downloaded."""
    local = f"or give the path of a local model folder; {' and '.join(BUILTIN_MODELS)} are built in"
    if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
        return _error("the files of a model cannot be written", name, error, f"free space (HF_HOME), {local}")
    if is_offline_mode():
        reason = "the model is not in the hub's cache, and HF_HUB_OFFLINE forbids to download it"
        return _error(reason, name, error, f"unset HF_HUB_OFFLINE once, {local}")
    reason = "the hub cannot be reached, and the model is not in its cache"
    return _error(reason, name, error, f"check the network (and HF_ENDPOINT), {local}")


def _error(what: str, name: str, error: Exception, remedy: str) -> ModelError:
    return ModelError(what, got=f"{name}: {first_line(error)}", remedy=remedy)
