"""A model server that speaks OpenAI's chat completions. Usage is random unless the prompt says otherwise.

Words of the prompt: `used=N` tokens of output, `sleep=S` seconds before the answer or between chunks, `fail`, and
`nousage` for streams that do not tell their usage. Each call appends a line "TIME TOKENS" to the file of the second
argument, GET /active returns the number of calls under way.
"""

import asyncio
import json
import random
import sys
import time

import uvicorn

active = 0
record = open(sys.argv[2], "a", buffering=1)


async def respond(send, status, body):
    text = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


async def stream(send, words, usage, sleep):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for n in range(10):
        delta = {"content": "word word word word word "}
        await event(send, choices=[{"index": 0, "delta": delta, "finish_reason": "stop" if n == 9 else None}])
        await asyncio.sleep(sleep)
    if "nousage" not in words:
        await event(send, choices=[], usage=usage)
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def event(send, **more):
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "mock", **more}
    await send({"type": "http.response.body", "body": f"data: {json.dumps(chunk)}\n\n".encode(), "more_body": True})


async def app(scope, receive, send):
    global active
    if scope["type"] != "http":
        return
    if scope["path"] == "/active":
        return await respond(send, 200, active)
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    asked = json.loads(body)
    words = asked["messages"][-1]["content"].split()
    told = dict(word.split("=") for word in words if "=" in word)
    output = int(told.get("used", random.randint(10, 100)))
    sleep = float(told.get("sleep", 0))
    usage = {"prompt_tokens": len(words), "completion_tokens": output, "total_tokens": len(words) + output}
    active += 1
    try:
        if asked.get("stream"):
            await stream(send, words, usage, sleep)
        else:
            await asyncio.sleep(sleep)
            if "fail" in words:
                return await respond(send, 400, {"error": {"message": "no", "type": "invalid_request_error"}})
            choice = {"index": 0, "message": {"role": "assistant", "content": "words"}, "finish_reason": "stop"}
            answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "mock"}
            await respond(send, 200, {**answer, "choices": [choice], "usage": usage})
        record.write(f"{time.time():.3f} {usage['total_tokens']}\n")
    finally:
        active -= 1


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
