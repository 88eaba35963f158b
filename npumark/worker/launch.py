"""Start the worker in whatever interpreter reads this file.

    PYTHON -P -X faulthandler …/npumark/worker/launch.py PIPE < JOB
    PYTHON -I …/npumark/worker/launch.py windows-ml

An engine may live in an environment of its own, whose interpreter knows nothing of npumark.
Of the installation that this file belongs to, the package ``npumark`` alone becomes importable
there: its neighbours are of another environment (another ONNX Runtime, another NumPy), and
mixing the two is what an environment is there to avoid. So what a worker imports needs the
standard library, NumPy, psutil and the engine's runtime, and nothing else. The interpreter that
runs npumark starts its workers in the same way. With ``windows-ml`` no job is carried out: an
installation has Windows install the providers that it delivers.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

WINDOWS_ML = "windows-ml"


def launch(arguments: list[str]) -> int:
    """Make ``npumark`` importable and run the worker; return its exit status.

    Raises ImportError where this file does not lie in a package.
    """
    package = Path(__file__).resolve().parent.parent
    spec = spec_from_file_location(
        "npumark", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{package} is not npumark")
    module = module_from_spec(spec)
    sys.modules["npumark"] = module
    spec.loader.exec_module(module)

    if arguments == [WINDOWS_ML]:
        from npumark.engines.ort_windows_ml import install_offered

        return install_offered()

    from npumark.worker.__main__ import main

    return main(arguments)


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1:]))
