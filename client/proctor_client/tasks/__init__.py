"""Tasks: rows, columns, ground truths and labels as the fields of a submission without its completion.

`task.Task` is the value. Trainers, adapters, the command line and the compatible routes make tasks with
these functions, and the judge puts a task and a completion together:

| given | function |
|---|---|
| a row of a data set, with any of its columns | `forms.task_from_row` |
| a ground truth, a label, `verification_info` | `ground_truth.task_of` |
| a file of rows; a data set by its name | `files.load_tasks`, `files.load_named` |
| a task and a completion | `task.submission_of` |
| testlib.h, and the folder of databases, for rows without | `supplies.Supplies` |

| form | rows as in | grader |
|---|---|---|
| `mbpp`, `mbppplus` | google-research-datasets/mbpp, evalplus/mbppplus | `asserts` |
| `humaneval`, `humanevalplus` | openai/openai_humaneval, evalplus/humanevalplus | `asserts` |
| `infilling` | openai/human-eval-infilling | `asserts` |
| `leetcode` | newfacade/LeetCodeDataset | `asserts` |
| `bigcodebench`, `classeval` | bigcode/bigcodebench, FudanSELab/ClassEval | `asserts` with unittest |
| `acecoder` | TIGER-Lab/AceCode-87K | `asserts` |
| `kodcode` | KodCode/KodCode-V1 | `pytest` |
| `cruxeval_output`, `cruxeval_input` | cruxeval-org/cruxeval | `asserts` |
| `ds1000` | xlangai/DS-1000 | `pytest` |
| `stdio` | programs with stdin and stdout | `stdio`; `calls` for functional cases |
| `apps`, `taco` | codeparrot/apps, BAAI/TACO | `stdio`; `calls` for `fn_name` |
| `livecodebench` | livecodebench/code_generation_lite | `stdio`; `calls` if functional |
| `codecontests`, `codeforces` | deepmind/code_contests, open-r1/codeforces | `stdio` |
| `codecontestsplus` | ByteDance-Seed/Code-Contests-Plus | `stdio` with a checker |
| `hardtests` | sigcp/hardtests_tests | `stdio`, with a checker |
| `spider`, `bird` | xlangai/spider, birdsql/bird_mini_dev | `verifier`: `sql` |
| `gsm8k`, `math` | openai/gsm8k, HuggingFaceH4/MATH-500, open-r1/OpenR1-Math-220k | `verifier`: `math` |
| `verification` | PrimeIntellect/SYNTHETIC-1 | `stdio`; `calls` for `function_call` |
| `humanevalx` | THUDM/humaneval-x | `exec` with tests; `asserts` for Python |
| `mbxp` | mxeval/mbxp, mxeval/multi-humaneval | `exec` with tests; `asserts` for Python |
| `multiple` | nuprl/MultiPL-E | `exec` with tests; `command` for Go |
| `swe_bench`, `swe_gym` | SWE-bench/SWE-bench_Verified, SWE-Gym/SWE-Gym | `repository` |
| `swe_rebench` | nebius/SWE-rebench, nebius/SWE-rebench-V2 | `repository` |
| `swe_smith`, `r2e_gym` | SWE-bench/SWE-smith, R2E-Gym/R2E-Gym-Subset | `repository` |
| `multi_swe` | ByteDance-Seed/Multi-SWE-RL, ByteDance-Seed/Multi-SWE-bench | `repository` |
| `swe_live`, `swe_pro` | SWE-bench-Live/SWE-bench-Live, ScaleAI/SWE-bench_Pro | `repository` |
| `columns` | the columns of a reward function | the row's own |
| `jsonl` | fields of a wire.Submission | the row's own |
"""
