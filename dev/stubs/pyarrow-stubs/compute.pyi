# pyarrow makes most of this module's functions when it is imported, from the kernels of its C++ library.
from typing import Any

def __getattr__(name: str) -> Any: ...
