"""Static analysis of test code: what it asks of a submission, and so at which level it is judged.

Everything here is decided from the tests, the setup and `entry_point`, before a submission runs.

    suite.py      parse the texts, and find which functions and TestCases are to be run
    names.py      resolve the names: which are the submission's, and which of these are classes
    values.py     trace which expressions hold objects that the tests made from the submission's classes
    needs.py      decide whether the tests must share the submission's process, and say why
    modules.py    judge the modules that tests import
    exposure.py   find comparisons in which one side could change what the other reads
    calls.py      plan calls, and hold the variables of the tests meanwhile
    formulas.py   compile conditions on what calls return
    literals.py   evaluate constant expressions, within bounds
    plan.py       express tests as calls and formulas over their results (the level `calls`)
    rewrite.py    rewrite test code for the test sandbox (the level `values`)
    levels.py     put it together: `analyse(grader)`
"""
