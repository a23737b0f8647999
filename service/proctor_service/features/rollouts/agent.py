"""Agent: ask the policy, execute its tool calls, and have its answer judged.

A trajectory ends with a verdict or with a failure. Every behaviour of the policy has a clean end:
invalid calls become observations, and a conversation without a result ends with `no_code` or with
the files in the sandbox. The policy's actions in its sandbox cannot change the verdict on a
submission: the same evaluator as for rewards judges the submission in fresh sandboxes.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from proctor_client.wire import CustomTool, RefineAgent, Tool, ToolsAgent
from proctor_service.errors import DeadlinePassed, Failure, JudgeFailed, PolicyRefused
from proctor_service.evaluate import Evaluate
from proctor_service.features.rollouts import answers, prompts
from proctor_service.features.rollouts.custom_tools import command_call, custom_schema, remote_call
from proctor_service.features.rollouts.mcp import NO_TOOLS, McpServers, McpTools
from proctor_service.features.rollouts.observation import Observation, feedback
from proctor_service.features.rollouts.policy import Ask, ContextExceeded
from proctor_service.features.rollouts.reply import Reply, ToolCall
from proctor_service.features.rollouts.tools import (
    SUBMIT,
    BadCall,
    CommandCall,
    OpenWorkplace,
    RemoteCall,
    Toolbox,
    arguments_of,
    schema,
)
from proctor_service.http.json import encode, without_surrogates
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.observe.observer import NO_OBSERVERS, Observer, Observers
from proctor_service.outcomes import (
    Item,
    JsonObject,
    NoCode,
    Origin,
    Outcome,
    Trajectory,
    TrajectoryPlan,
)
from proctor_service.settings.mcp_servers import NO_SERVERS, McpServer

log = logging.getLogger(__name__)

Play = Callable[[TrajectoryPlan, Ask], Awaitable[Trajectory]]
TakeState = Callable[[TrajectoryPlan], AbstractAsyncContextManager[object]]
"""Wait for permission to hold the files of a sandbox in memory until they are judged."""

COUNTS = (
    "turns",
    "tool_calls",
    "exec_errors",
    "bad_tool_calls",
    "hit_max_turns",
    "context_exceeded",
    "prompt_tokens",
    "completion_tokens",
)


class Player:
    """Runner of trajectories."""

    def __init__(
        self,
        evaluate: Evaluate,
        open_workplace: OpenWorkplace,
        take_state: TakeState,
        mcp_servers: Mapping[str, McpServer] = NO_SERVERS,
        observers: Observers = NO_OBSERVERS,
    ) -> None:
        self._evaluate = evaluate
        self._open_workplace = open_workplace
        self._take_state = take_state
        self._mcp_servers = McpServers(mcp_servers)
        self._notify = observers.notify

    async def play(self, plan: TrajectoryPlan, ask: Ask) -> Trajectory:
        """Run a trajectory from the prompt to the reward. Only a cancellation raises."""
        self._notify(Observer.trajectory_begun, plan)
        try:
            trajectory = await self._play(plan, ask)
        except BaseException as error:
            self._notify(Observer.trajectory_interrupted, plan, error)
            raise
        self._notify(Observer.trajectory_ended, plan, trajectory)
        return trajectory

    async def _play(self, plan: TrajectoryPlan, ask: Ask) -> Trajectory:
        episode = _Episode(plan, ask, self._evaluate)
        toolbox = Toolbox(plan, self._open_workplace)
        failure: Failure | None = None
        try:
            async with asyncio.timeout_at(plan.deadline) as limit:
                if isinstance(plan.agent, RefineAgent):
                    await _refine(episode, plan.agent)
                else:
                    async with self._mcp_servers.open(plan.agent.mcp_servers) as mcp_tools:
                        episode.offer(mcp_tools)
                        await _use_tools(episode, plan.agent, toolbox, self._take_state)
        except Failure as error:
            failure = error
        except TimeoutError as error:
            passed = DeadlinePassed("the deadline passed before the trajectory was at its end")
            failure = passed if limit.expired() else _fault(plan, error)
        except Exception as error:
            failure = _fault(plan, error)
        finally:
            await toolbox.end()
        return episode.trajectory(failure, toolbox.sandbox_id)


def _fault(plan: TrajectoryPlan, error: Exception) -> JudgeFailed:
    log.error("a trajectory failed", exc_info=error, extra={"rollout_id": plan.rollout_id})
    return JudgeFailed(f"a fault of the service; its log has it under {plan.rollout_id}")


class _Episode:
    """Conversation, counts and outcome of a trajectory so far."""

    def __init__(self, plan: TrajectoryPlan, ask: Ask, evaluate: Evaluate) -> None:
        self.plan = plan
        self.counts = dict.fromkeys(COUNTS, 0)
        names: list[Tool] = []
        custom: list[CustomTool] = []
        if isinstance(plan.agent, ToolsAgent):
            names, custom = plan.agent.tools, plan.agent.custom_tools
        self.mcp_tools = NO_TOOLS
        self.tools: tuple[JsonObject, ...] = (
            *(schema(name) for name in dict.fromkeys(names)),
            *(custom_schema(tool) for tool in custom),
        )
        self._ask = ask
        self._evaluate = evaluate
        self._begun = time.monotonic()
        self._outcome: Outcome | None = None
        self._conversation: list[JsonObject] = []
        self._encoded: list[bytes] = []
        for message in plan.task.messages:
            self._add(message)

    @property
    def turns(self) -> int:
        """Number of replies from the policy."""
        return self.counts["turns"]

    def offer(self, mcp_tools: McpTools) -> None:
        """Offer the tools of MCP servers to the policy, too."""
        self.mcp_tools = mcp_tools
        self.tools += tuple(tool.schema for tool in mcp_tools.values())

    async def next_reply(self) -> Reply | None:
        """Return the policy's next reply; None if the conversation exceeds its context."""
        try:
            reply = await self._ask(self._conversation, self.tools, self.plan.seed)
        except ContextExceeded as error:
            if not self.turns:  # first request: the task or max_tokens is too long
                advice = "shorten the prompt or reduce policy.max_tokens"
                raise PolicyRefused(f"policy: {error}; {advice}") from None
            self.counts["context_exceeded"] = 1
            return None
        self.counts["turns"] += 1
        self.counts["prompt_tokens"] += reply.prompt_tokens
        self.counts["completion_tokens"] += reply.completion_tokens
        self._conversation.append(reply.message())
        self._encoded.append(reply.choice_json)
        return reply

    def add_user_message(self, text: str) -> None:
        """Send text to the policy as the user."""
        self._add({"role": "user", "content": text})

    def observe(self, call: ToolCall, text: str) -> None:
        """Send the result of a tool call to the policy."""
        self._add({"role": "tool", "tool_call_id": call.id, "content": text})

    async def judge(self, answer: Submission | NoCode) -> Judgement:
        """Return the judgement of an answer; the last judgement counts. Raises a Failure."""
        plan = self.plan
        item = Item(
            evaluation_id=f"ev_{uuid.uuid4().hex}",
            submission=answer,
            tenant=plan.tenant,
            job=plan.job,
            deadline=plan.deadline,
            tags=plan.sandbox_tags,
            priority=plan.priority,
            begun=True,
            rollout_id=plan.rollout_id,
            origin=_origin_of(plan),
        )
        outcome = await self._evaluate(item)
        if outcome.failure is not None:
            raise outcome.failure
        if outcome.judgement is None:
            raise JudgeFailed("the judge said nothing")
        self._outcome = outcome
        return outcome.judgement

    def trajectory(self, failure: Failure | None, sandbox_id: str | None) -> Trajectory:
        """Return the trajectory as the result of the episode.

        Without a sandbox of its own, the trajectory names the sandbox of the judge.
        """
        outcome = self._outcome if failure is None else None
        if outcome is None and failure is None:
            failure = JudgeFailed("the episode ended without a verdict")
        judgement = None if outcome is None else outcome.judgement
        if sandbox_id is None and judgement is not None:
            sandbox_id = judgement.sandbox_id
        seconds = round(time.monotonic() - self._begun, 6)
        return Trajectory(
            messages_and_choices=tuple(self._encoded),
            tools=self.tools or None,
            reward=None if outcome is None else outcome.reward,
            verdict=None if judgement is None else judgement.verdict,
            failure=failure,
            metrics={**self.counts, "duration_seconds": seconds},
            sandbox_id=sandbox_id,
        )

    def _add(self, message: JsonObject) -> None:
        self._conversation.append(message)
        self._encoded.append(encode(message))


def _origin_of(plan: TrajectoryPlan) -> Origin:
    """Return where an answer comes from. Of a grader of completions a replay needs the rule, too."""
    reads_completion = plan.task.grader.judges == "completion"
    extract = plan.extract if reads_completion else "none"
    return Origin(extract=extract, task=plan.task.id, step=plan.step)


async def _refine(episode: _Episode, agent: RefineAgent) -> None:
    """Ask the policy for code until an attempt passes; the last attempt counts."""
    plan, counts = episode.plan, episode.counts
    counts["attempts"] = 0
    while (reply := await episode.next_reply()) is not None:
        judgement = await episode.judge(await answers.of_reply(plan, reply.text))
        counts["attempts"] += 1
        if judgement.verdict == "passed":
            return
        if counts["attempts"] == agent.max_attempts:
            counts["hit_max_turns"] = 1
            return
        # A program's error message may hold characters impossible in a request to the policy.
        text = without_surrogates(feedback(judgement, agent.observation_characters))
        episode.add_user_message(f"{prompts.CUT}\n{text}" if reply.cut else text)


async def _use_tools(
    episode: _Episode, agent: ToolsAgent, toolbox: Toolbox, take_state: TakeState
) -> None:
    """Execute the policy's tool calls until a submission, a reply without calls, or the limit."""
    submits, last_reply = SUBMIT in agent.tools, ""
    while episode.turns < agent.max_turns and (reply := await episode.next_reply()) is not None:
        last_reply = reply.text
        for call in reply.tool_calls:
            submitted = await _carry_out(episode, agent, toolbox, call, reply)
            if submitted is not None:
                await episode.judge(await answers.of_submission(episode.plan, submitted))
                return
        if reply.tool_calls:
            continue
        if not submits:
            break
        if episode.turns < agent.max_turns:
            episode.add_user_message(
                f"{prompts.CUT} {prompts.CALL_A_TOOL}" if reply.cut else prompts.CALL_A_TOOL
            )
    else:
        episode.counts["hit_max_turns"] = int(not episode.counts["context_exceeded"])
    if submits:
        await episode.judge(await answers.of_code(episode.plan, None))
        return
    async with take_state(episode.plan):
        await episode.judge(await toolbox.left_behind(last_reply))


def _read_call(
    call: ToolCall, agent: ToolsAgent, mcp_tools: McpTools
) -> tuple[Tool | CommandCall | RemoteCall, Mapping[str, str]]:
    """Return the tool of a call and the arguments of a built-in tool. Raises BadCall."""
    custom = {tool.function.name: tool for tool in agent.custom_tools}
    if call.name in custom:
        return command_call(call, custom[call.name]), {}
    if call.name in mcp_tools:
        return remote_call(call, mcp_tools[call.name]), {}
    return arguments_of(call, agent.tools, (*custom, *mcp_tools))


async def _carry_out(
    episode: _Episode, agent: ToolsAgent, toolbox: Toolbox, call: ToolCall, reply: Reply
) -> str | None:
    """Execute a call; return the code of a submission, or None for other calls.

    A submission has the verdict as its observation.
    """
    counts = episode.counts
    counts["tool_calls"] += 1
    try:
        tool, values = _read_call(call, agent, episode.mcp_tools)
    except BadCall as error:
        counts["bad_tool_calls"] += 1
        observation = Observation(f"Error: {error}", prompts.CUT if reply.cut else "")
    else:
        if tool == SUBMIT:
            return values["code"]
        observation = await toolbox.use(tool, values, agent.exec_timeout_seconds)
        counts["exec_errors"] += observation.failed
    episode.observe(call, observation.text(agent.observation_characters))
    return None
