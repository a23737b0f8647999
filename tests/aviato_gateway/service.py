"""The stand-in's RPCs: those that the SDK needs, on its own messages.

Quirks of Aviato that the SDK relies on: an exit code on COMPLETED, a `sandbox` in the answer to a
deletion, `ready` before stdin, typed errors in `grpc-status-details-bin`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]
from cwsandbox._proto import sandbox_pb2 as pb
from cwsandbox._proto.sandbox_pb2_grpc import SandboxServiceServicer
from google.protobuf import any_pb2  # type: ignore[import-untyped]
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from aviato_gateway.sandboxes import ENDED, Box, Boxes, Command

_CHUNK = 1 << 16
_PAGE = 100


async def refuse(
    context: Any, code: Any, message: str, reason: str, delay_seconds: float | None = None
) -> NoReturn:
    """Ends a call with a typed error."""
    details = [error_details_pb2.ErrorInfo(domain="cwsandbox.com", reason=f"CWSANDBOX_{reason}")]
    if delay_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(int(delay_seconds * 1000))
        details.append(retry)
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(code, message)
    raise AssertionError("not reached")


class Service(SandboxServiceServicer):
    """`coreweave.sandbox.v1.SandboxService`."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    async def CreateSandbox(self, request: Any, context: Any) -> Any:
        await self._authorize(context)
        faults = self._boxes.faults
        if faults.refuse > 0:
            faults.refuse -= 1
            await refuse(
                context,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "no runner has room",
                "RUNNER_CAPACITY_EXHAUSTED",
                0.1,
            )
        return _shown(self._boxes.create(request.request_id, request.sandbox.spec))

    async def GetSandbox(self, request: Any, context: Any) -> Any:
        await self._authorize(context)
        return _shown(await self._find(request.sandbox_id, context))

    async def ListSandboxes(self, request: Any, context: Any) -> Any:
        await self._authorize(context)
        found = [
            box
            for box in self._boxes.all.values()
            if set(request.tags) <= set(box.spec.tags)
            and (request.show_terminated or box.state not in ENDED)
        ]
        start = int(request.page_token or 0)
        answer = pb.ListSandboxesResponse(sandboxes=map(_shown, found[start : start + _PAGE]))
        if start + _PAGE < len(found):
            answer.next_page_token = str(start + _PAGE)
        return answer

    async def DeleteSandbox(self, request: Any, context: Any) -> Any:
        await self._authorize(context)
        if request.allow_missing and request.sandbox_id not in self._boxes.all:
            return pb.DeleteSandboxResponse()
        box = await self._find(request.sandbox_id, context)
        box.end(pb.STATE_COMPLETED)
        return pb.DeleteSandboxResponse(sandbox=_shown(box))

    async def WriteFile(self, request: Any, context: Any) -> Any:
        await self._authorize(context)
        box = await self._running(request.sandbox_id, context)
        descriptor = os.memfd_create("file")
        os.write(descriptor, request.content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        if await box.run("write", request.path, [descriptor]).ended != 0:
            code = grpc.StatusCode.INTERNAL
            await refuse(context, code, f"cannot write {request.path}", "FILE_IO_FAILED")
        return pb.WriteFileResponse()

    async def StreamExec(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        await self._authorize(context)
        init = (await anext(requests)).init
        box = await self._running(init.sandbox_id, context)
        stdin, ours_in = os.pipe()
        ours_out, stdout = os.pipe()
        ours_err, stderr = os.pipe()
        command = box.run("exec", list(init.command), [stdin, stdout, stderr])
        self._boxes.on_begun()
        feeding = asyncio.create_task(_feed(requests, ours_in))
        try:
            ready = pb.ExecStreamResponse()
            ready.ready.SetInParent()
            yield ready
            outputs = {
                pb.ExecStreamOutput.STREAM_STDOUT: await _reader(ours_out),
                pb.ExecStreamOutput.STREAM_STDERR: await _reader(ours_err),
            }
            async for output in _outputs(outputs, command):
                yield pb.ExecStreamResponse(output=output)
            if command.fault.done() and command.fault.result() == "cut":
                return
            if command.fault.done() and command.fault.result() == "gone":
                code = grpc.StatusCode.UNAVAILABLE
                await refuse(context, code, "the runner is gone", "RUNNER_UNAVAILABLE")
            yield pb.ExecStreamResponse(exit=pb.ExecStreamExit(exit_code=await command.ended))
        finally:
            with contextlib.suppress(OSError):
                box.kill(command)
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def ConnectSandbox(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there is only the gateway")

    # ------------------------------------------------------------

    async def _authorize(self, context: Any) -> None:
        given, key = dict(context.invocation_metadata()), self._boxes.faults.key
        if given.get("authorization") != f"Bearer {key}" and given.get("x-wandb-api-key") != key:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the key is not known")

    async def _find(self, sandbox_id: str, context: Any) -> Box:
        if sandbox_id not in self._boxes.all:
            code = grpc.StatusCode.NOT_FOUND
            await refuse(context, code, "no such sandbox", "SANDBOX_NOT_FOUND")
        return self._boxes.all[sandbox_id]

    async def _running(self, sandbox_id: str, context: Any) -> Box:
        box = await self._find(sandbox_id, context)
        if box.state != pb.STATE_RUNNING:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"it is not running: {box.failed}"
            )
        return box


def _shown(box: Box) -> Any:
    status = pb.SandboxStatus(state=box.state)
    if box.state in ENDED:
        status.exit_code = 0
    return pb.Sandbox(sandbox_id=box.id, spec=box.spec, status=status)


async def _feed(requests: AsyncIterator[Any], descriptor: int) -> None:
    """To the command's stdin, until the client closes it."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(descriptor, "wb", 0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        async for request in requests:
            if request.HasField("close"):
                break
            writer.write(request.stdin)
            await writer.drain()
    except (OSError, asyncio.CancelledError):
        pass
    finally:
        if not transport.is_closing():
            transport.abort()


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader, transport


async def _outputs(
    outputs: dict[Any, tuple[asyncio.StreamReader, asyncio.ReadTransport]], command: Command
) -> AsyncIterator[Any]:
    """What comes out of a command, until it has ended or meets its fault."""
    queue: asyncio.Queue[Any] = asyncio.Queue(16)

    async def pump(stream: Any, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK):
            await queue.put(pb.ExecStreamOutput(stream=stream, data=data))

    async def over() -> None:
        both: set[asyncio.Future[Any]] = {command.ended, command.fault}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not command.fault.done():
            await asyncio.wait(pumps)
        await queue.put(None)

    pumps = [asyncio.create_task(pump(n, reader)) for n, (reader, _) in outputs.items()]
    ending = asyncio.create_task(over())
    try:
        while (item := await queue.get()) is not None:
            yield item
    finally:
        for task in (*pumps, ending):
            task.cancel()
        await asyncio.gather(*pumps, ending, return_exceptions=True)
        for _, transport in outputs.values():
            transport.close()
