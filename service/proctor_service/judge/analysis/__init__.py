"""Static analysis of test code: how tests use a submission, and the resulting level of judging.

The analysis reads only the tests, the setup and `entry_point`, before a submission runs.

    suite.py      parse the texts, and find the functions and TestCases to run
    names.py      resolve names: find the submission's names, and the classes among them
    answers.py    answer questions about names that may depend on each other
    values.py     trace the expressions that hold objects made from the submission's classes
    needs.py      decide whether the tests must share the submission's process, and give the reason
    calls.py      plan calls, and hold the variables of the tests meanwhile
    formulas.py   compile conditions on the results of calls
    literals.py   evaluate constant expressions, within bounds
    plan.py       express tests as calls and formulas over their results (the level `calls`)
    rewrite.py    rewrite test code for the test sandbox (the level `values`); find comparisons in
                  which one operand could change a variable of the other
    levels.py     combine all steps: `analyse(grader)`
"""
