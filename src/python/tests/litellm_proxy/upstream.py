"""A model server that speaks OpenAI's chat completions. Usage is random unless the prompt says otherwise.

Words of the prompt: `tag=T` names the load, `used=N` tokens of output, `sleep=S` seconds before the answer or between
chunks, `fail`, and `nousage` for streams that do not tell their usage. Each call is recorded when it arrives, as a line
"TIME TAG TOKENS" in the file of the second argument. GET /active/T returns the number of calls under way, and the maximum
so far.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter

import uvicorn

active = Counter()
most = Counter()
record = open(sys.argv[2], "a", buffering=1)


async def respond(send, status, body):
    text = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


async def stream(send, words, usage, sleep, gone):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for n in range(10):
        delta = {"content": "word word word word word "}
        await event(send, choices=[{"index": 0, "delta": delta, "finish_reason": "stop" if n == 9 else None}])
        await asyncio.sleep(sleep)
        if gone.done():
            return
    if "nousage" not in words:
        await event(send, choices=[], usage=usage)
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def event(send, **more):
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "mock", **more}
    await send({"type": "http.response.body", "body": f"data: {json.dumps(chunk)}\n\n".encode(), "more_body": True})


async def answer(send, asked, words, told, gone):
    output = int(told.get("used", random.randint(50, 490)))
    sleep = float(told.get("sleep", 0))
    usage = {"prompt_tokens": len(words), "completion_tokens": output, "total_tokens": len(words) + output}
    if "fail" in words:
        await asyncio.sleep(sleep)
        return await respond(send, 400, {"error": {"message": "no", "type": "invalid_request_error"}})
    record.write(f"{time.time():.3f} {told.get('tag')} {usage['total_tokens']}\n")
    if asked.get("stream"):
        return await stream(send, words, usage, sleep, gone)
    await asyncio.wait([gone], timeout=sleep)
    choice = {"index": 0, "message": {"role": "assistant", "content": "words"}, "finish_reason": "stop"}
    completion = {"id": "x", "object": "chat.completion", "created": 1, "model": "mock"}
    return lambda: respond(send, 200, {**completion, "choices": [choice], "usage": usage})


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"].startswith("/active/"):
        tag = scope["path"].rpartition("/")[2]
        return await respond(send, 200, [active[tag], most[tag]])
    if not scope["path"].endswith("/chat/completions"):
        return await respond(send, 404, {"error": {"message": "not found"}})
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    asked = json.loads(body)
    words = asked["messages"][-1]["content"].split()
    told = dict(word.split("=") for word in words if "=" in word)
    gone = asyncio.ensure_future(receive())
    tag = told.get("tag")
    active[tag] += 1
    most[tag] = max(most[tag], active[tag])
    try:
        last = await answer(send, asked, words, told, gone)
    finally:
        active[tag] -= 1
        gone.cancel()
    if last is not None:
        # The caller may start its next call as soon as it has the answer.
        await last()


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
