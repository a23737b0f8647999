"""Built-in system prompts, and messages to an agent after a break of the format."""

from __future__ import annotations

from collections.abc import Mapping

from proctor_client.wire import Agent, Extract, ExtractName, ExtractRule, RefineAgent, Tool

REFINE = (
    "You are an expert Python programmer. Answer with one complete program {where}. "
    "It is run against tests; when some fail, you are told how, and may answer again."
)
WHERE: Mapping[ExtractName, str] = {
    "auto": "in a ```python block",
    "fence": "in a ```python block",
    "xml": "between <answer> and </answer>",
    "none": "and nothing else",
    "diff": "as a unified diff in a ```diff block",
    "edits": "as blocks of search and replace",
}
TOOLS = (
    "You are an expert Python programmer. Solve the task with the tools you have. They work in one "
    "sandbox, which keeps its files from call to call. Test your solution before you finish."
)
SUBMIT = "When you are done, call submit_solution with the whole program."
FINISH = (
    "Leave your solution in solution.py in the working directory. When you are done, answer without "
    "calling a tool."
)
CALL_A_TOOL = "You called no tool. Call one, or submit_solution with the whole program."
CUT = "Your answer was cut off at the limit of tokens; keep it shorter."


def system_prompt(agent: Agent, extract: Extract) -> str:
    """Return the agent's own system prompt or the built-in prompt; may be empty."""
    if agent.system_prompt is not None:
        return agent.system_prompt
    if isinstance(agent, RefineAgent):
        return REFINE.format(where=_where(extract))
    submits: Tool = "submit_solution"
    return f"{TOOLS} {SUBMIT if submits in agent.tools else FINISH}"


def _where(extract: Extract) -> str:
    if not isinstance(extract, ExtractRule):
        return WHERE[extract]
    if extract.tags:
        return f"between <{extract.tags[0]}> and </{extract.tags[0]}>"
    return WHERE["none" if extract.fence == "none" else "fence"]
