"""Run a program as ``python -W error`` does, in a process that has imported Headgate already."""

import runpy
import sys
import warnings

if __name__ == "__main__":
    warnings.simplefilter("error")
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
