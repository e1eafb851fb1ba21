"""Arrays on a card: copied there and back, taken from and handed to other libraries, and refused where they must be."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from pytrace.errors import DeviceUnavailableError
from pytrace.kernels import devices, normalize

DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
)  # fmt: skip


class ByPack:
    """An array that speaks DLPack, as PyTorch's and CuPy's do: by methods of its class."""

    def __init__(self, array):
        self.array = array
        self.asked = []

    def __dlpack__(self, *, stream=None):
        self.asked.append(stream)
        return self.array.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class ByInterface:
    """An array that describes itself by __cuda_array_interface__, as Numba's do."""

    def __init__(self, array, **changes):
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | changes


def rows(count=9, width=5, seed=0):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0), (3, 5), (2, 3, 4)])
def test_an_array_comes_back_as_it_was(card, dtype, shape):
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    there = devices.to_device(array, card)
    assert (there.shape, there.dtype, there.device, there.nbytes) == (shape, dtype, 0, array.nbytes)
    back = there.numpy()
    assert back.dtype == array.dtype
    assert back.shape == shape
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    "take", [lambda a: a[::2], lambda a: a[::-1], lambda a: a[:, ::2], lambda a: a.T, np.asfortranarray]
)
def test_steps_and_orders_are_laid_out_anew(card, take):
    array = take(rows())
    np.testing.assert_array_equal(devices.to_device(array, card).numpy(), array)


def test_an_array_larger_than_a_slot_comes_back_as_it_was(card):
    array = rows(700, 33)
    np.testing.assert_array_equal(devices.to_device(array, card).numpy(), array)


def test_results_live_where_the_input_lives(card):
    array = rows()
    on_host = normalize(array, device=card)
    assert isinstance(on_host, np.ndarray)
    np.testing.assert_allclose(on_host, normalize(array), rtol=1e-7)
    there = devices.to_device(array, card)
    for given in (there, ByPack(there), ByInterface(there)):
        found = normalize(given)
        assert devices.on_card(found)
        np.testing.assert_array_equal(found.numpy(), on_host)


def test_dlpack_asks_for_values_that_are_ready(card):
    foreign = ByPack(devices.to_device(rows(), card))
    normalize(foreign)
    assert foreign.asked == [1]  # the default stream, which is waited for


@pytest.mark.parametrize("stream", [None, 1, 2])
def test_a_stream_that_fills_an_array_is_waited_for(card, stream):
    there = devices.to_device(rows(), card)
    np.testing.assert_array_equal(normalize(ByInterface(there, stream=stream)).numpy(), normalize(there).numpy())


@pytest.mark.parametrize(
    "given",
    [
        ByInterface,
        lambda array: ByInterface(array, stream=None),
        lambda array: ByInterface(array, stream=1),
        ByPack,
    ],
)
@pytest.mark.parametrize("card", ["emulated"], indirect=True)
def test_what_the_default_stream_has_yet_to_fill_is_waited_for(card, given):
    fill = ctypes.CDLL(devices.cuda_module().__file__).emulated_fill
    expected = normalize(np.frombuffer(b"\x3f" * 4 * 8 * 4, np.float32).reshape(4, 8), device=card)
    for _ in range(10):  # whose turn it is, is left to chance
        there = devices.to_device(np.zeros((4, 8), np.float32), card)
        begin = there.__cuda_array_interface__["data"][0]
        assert fill(ctypes.c_void_p(begin), 0x3F, ctypes.c_size_t(there.nbytes)) == 0
        np.testing.assert_array_equal(normalize(given(there)).numpy(), expected)


def test_rows_apart_are_read_in_place(card):
    array = rows(8, 6)
    there = devices.to_device(array, card)
    shape = {"shape": (4, 6), "strides": (2 * 6 * 4, 4)}
    np.testing.assert_array_equal(normalize(ByInterface(there, **shape)).numpy(), normalize(array[::2], device=card))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strides": (4, 24)}, "steps within its rows"),
        ({"strides": (24,)}, "2 dimensions but 1 strides"),
        ({"strides": (25, 4)}, "no whole elements"),
        ({"typestr": "<c8"}, "real numbers"),
        ({"mask": 3}, "masked"),
    ],
)
def test_an_interface_that_cannot_be_read_is_refused(card, changes, message):
    foreign = ByInterface(devices.to_device(rows(6, 6), card), **changes)
    with pytest.raises((ValueError, TypeError), match=message):
        normalize(foreign)


def test_an_array_that_begins_amid_an_element_is_refused(card):
    there = devices.to_device(rows(6, 6), card)
    begin = there.__cuda_array_interface__["data"][0]
    foreign = ByInterface(there, data=(begin + 2, False), shape=(5, 6))
    with pytest.raises(ValueError, match="vectors begins amid an element: its address is no multiple of 4 bytes"):
        normalize(foreign)


def test_an_array_of_a_card_that_is_not_there_is_refused(card):
    class Elsewhere(ByPack):
        def __dlpack_device__(self):
            return (2, 99)

    foreign = Elsewhere(devices.to_device(rows(), card))
    with pytest.raises(DeviceUnavailableError, match="no device 99"):
        normalize(foreign)
    assert foreign.asked == []  # for nothing is ready there


def test_memory_that_is_not_on_a_card_is_refused(card):
    host = rows()
    foreign = ByInterface(devices.to_device(rows(), card), data=(host.ctypes.data, False))
    with pytest.raises(ValueError, match="its memory is not there"):
        normalize(foreign)


def test_nan_is_named_by_its_place(card):
    array = rows()
    array[4, 2] = np.nan
    array[7, 0] = np.inf
    for given in (array, devices.to_device(array, card)):
        with pytest.raises(ValueError, match=r"vectors\[4, 2\] is NaN or infinite"):
            normalize(given, device=card)


def test_an_array_outlives_what_it_was_handed_over_as(card):
    array = rows()
    capsule = devices.to_device(array, card).__dlpack__()
    gc.collect()

    class Holder:
        def __dlpack__(self, *, stream=None):
            return capsule

        def __dlpack_device__(self):
            return (2, 0)

    np.testing.assert_array_equal(normalize(Holder()).numpy(), normalize(array, device=card))


def test_a_capsule_is_taken_once(card):
    capsule = devices.to_device(rows(), card).__dlpack__()

    class Holder:
        def __dlpack__(self, *, stream=None):
            return capsule

        def __dlpack_device__(self):
            return (2, 0)

    normalize(Holder())
    with pytest.raises(ValueError, match="dltensor"):
        normalize(Holder())


def test_memory_is_given_back(card, monkeypatch):
    if not devices.cuda_module().emulated:
        pytest.skip("a real card's memory is too large to fill in a test")
    devices.empty_cache()
    monkeypatch.setenv("PYTRACE_EMULATED_MEMORY", str(1 << 18))
    array = np.ones(1 << 14, np.float32)
    for _ in range(40):
        there = devices.to_device(array, card)
        there.__dlpack__()  # never taken
        normalize(there)
    with pytest.raises(MemoryError, match="no room for 2 MB"):
        devices.to_device(np.ones(1 << 18, np.float32), card)
    normalize(there)  # and the module is as good as before


def test_another_library_gets_its_own_arrays(card, monkeypatch):
    there = devices.to_device(rows(), card)
    made = []

    class Tensor(ByPack):
        pass

    Tensor.__module__ = "tensors.core"
    library = type("Library", (), {"from_dlpack": staticmethod(lambda found: made.append(found) or Tensor(found))})
    monkeypatch.setitem(sys.modules, "tensors", library)
    found = normalize(Tensor(there))
    assert isinstance(found, Tensor)
    np.testing.assert_array_equal(made[0].numpy(), normalize(there).numpy())


def test_bfloat16_is_handed_over_by_dlpack_alone(card):
    there = devices.to_device(rows().astype(ml_dtypes.bfloat16), card)
    assert there.dtype == "bfloat16"
    with pytest.raises(AttributeError, match="bfloat16"):
        _ = there.__cuda_array_interface__
    np.testing.assert_array_equal(there.numpy().view(ml_dtypes.bfloat16), rows().astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999", "CUDA", "", 0])
def test_a_device_that_is_none_is_refused(device):
    with pytest.raises(ValueError, match="'cpu', 'cuda' or 'cuda:N'"):
        normalize(rows(), device=device)


@pytest.mark.usefixtures("card")
def test_a_card_that_is_not_there_is_refused():
    with pytest.raises(DeviceUnavailableError, match="no device 77"):
        normalize(rows(), device="cuda:77")


def test_an_array_on_a_card_is_not_computed_on_the_processor_unasked(card):
    with pytest.raises(ValueError, match="device is 'cpu', but an array lies on a card"):
        normalize(devices.to_device(rows(), card), device="cpu")


def test_no_device_is_told_as_found(card, monkeypatch):
    if not devices.cuda_module().emulated:
        pytest.skip("this machine's card cannot be taken away")
    monkeypatch.setenv("PYTRACE_EMULATED_DEVICES", "0")
    with pytest.raises(DeviceUnavailableError, match=r"a driver \(CUDA 13\.0\), but no device"):
        normalize(rows(), device=card)
    assert devices.cuda_module().installation()[2].startswith("there is a driver")


def test_a_build_without_the_module_says_so(monkeypatch):
    monkeypatch.setattr(devices, "_module", None)
    monkeypatch.setitem(sys.modules, "pytrace._cuda", None)
    with pytest.raises(DeviceUnavailableError, match=r"no CUDA module|cannot be loaded"):
        normalize(rows(), device="cuda")


def test_the_module_loads_and_reports_without_a_driver(monkeypatch):
    monkeypatch.setattr(devices, "_module", None)
    try:
        module = devices.cuda_module()
    except DeviceUnavailableError as error:
        pytest.skip(f"this build has no CUDA module: {error}")
    assert not module.emulated
    driver, runtime, problem, found = module.installation()
    assert runtime >= 11000
    if problem:
        assert found == []
        with pytest.raises(DeviceUnavailableError):
            normalize(rows(), device="cuda")
        with pytest.raises(DeviceUnavailableError):
            devices.to_device(rows())
    else:
        assert driver >= 11000
        assert found


def test_threads_do_not_meet_in_each_others_workspace(card):
    arrays = [rows(40, 17, seed) for seed in range(4)]
    expected = [normalize(array, device=card) for array in arrays]
    wrong = []

    def work(number):
        for _ in range(5):
            if not np.array_equal(normalize(arrays[number], device=card), expected[number]):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_threads_changes_nothing(card, monkeypatch, seed):
    array = rows(30, 40)
    expected = normalize(array, device=card)
    monkeypatch.setenv("PYTRACE_EMULATION_SEED", str(seed + 100))
    np.testing.assert_array_equal(normalize(array, device=card), expected)
