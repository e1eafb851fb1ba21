from __future__ import annotations

import threading
import time

from pytrace.models.language_model import deferred
from pytrace.models.scripted import ScriptedModel


def test_a_model_is_loaded_once_however_many_threads_ask_first():
    loads = []

    def load() -> ScriptedModel:
        loads.append(threading.get_ident())
        time.sleep(0.05)  # as long as the others need to come
        return ScriptedModel(lambda prompt: prompt[::-1])

    model = deferred(load)
    assert model.usage.calls == 0
    start, answers = threading.Barrier(8), []

    def ask() -> None:
        start.wait()
        answers.append(model.generate(["abc"], max_tokens=5)[0][0].text)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["cba"] * 8
    assert len(loads) == 1
