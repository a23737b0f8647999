"""Rows of data sets as problems: the grader that judges a completion, and the reference solution.

`load_tasks` reads a file of rows, `load_named` a data set by its name. A trainer and the command
line use the same converters:

| form | rows as in | grader |
|---|---|---|
| `mbpp`, `mbppplus` | google-research-datasets/mbpp, evalplus/mbppplus | `asserts` |
| `humaneval`, `humanevalplus` | openai/openai_humaneval, evalplus/humanevalplus | `asserts` |
| `bigcodebench`, `classeval` | bigcode/bigcodebench, FudanSELab/ClassEval | `asserts` with unittest |
| `cruxeval_output`, `cruxeval_input` | cruxeval-org/cruxeval | `asserts` |
| `ds1000` | xlangai/DS-1000 | `pytest` |
| `stdio` | programs with stdin and stdout | `stdio` |
| `apps`, `taco` | codeparrot/apps, BAAI/TACO | `stdio`; `calls` for `fn_name` |
| `livecodebench` | livecodebench/code_generation_lite | `stdio`; `calls` if functional |
| `codecontests` | deepmind/code_contests | `stdio` |
| `humanevalx` | THUDM/humaneval-x | `exec` with tests; `asserts` for Python |
| `mbxp` | mxeval/mbxp, mxeval/multi-humaneval | `exec` with tests; `asserts` for Python |
| `jsonl` | fields of a wire.Submission | the row's own |
"""
