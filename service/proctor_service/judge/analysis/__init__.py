"""Static analysis of test code: how tests use a submission, and the resulting level of judging.

The analysis reads only the tests, the setup and `entry_point`, before a submission runs.

    suite.py            parse the texts, and find the functions and TestCases to run
    names.py            find the submission's names, and the classes among them
    functions.py        decide whether tests only call functions and compare data
    flow.py             follow values through the tests; data_attributes.py, shared_state.py: their rules
    setups.py           split the setup into the parts before and behind the submission
    calls.py            plan calls, and hold the variables of the tests meanwhile
    formulas.py         compile conditions on the results of calls
    literals.py         evaluate constant expressions, within bounds
    plan.py             express tests as calls and formulas over their results (the level `calls`)
    levels.py           combine all steps: `analyse(grader)`
    process.py          the same for long tests, in a process of its own
"""
