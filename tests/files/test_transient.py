from __future__ import annotations

from penstock.files import TransientStorePool

SIZE = 1 << 20


def test_pool_lends_so_many_buffers_and_no_more() -> None:
    pool = TransientStorePool(2, SIZE)
    first, second = pool.borrow(), pool.borrow()
    assert first is not None
    assert second is not None
    assert (pool.borrow(), pool.available) == (None, 0)
    pool.give_back(first)
    assert pool.available == 1
    assert pool.borrow() is first


def test_s03_returned_buffer_holds_nothing_of_the_file_before() -> None:
    pool = TransientStorePool(1, SIZE)
    buffer = pool.borrow()
    assert buffer is not None
    buffer[:] = b"\xff" * SIZE
    pool.give_back(buffer)
    again = pool.borrow()
    assert again is not None
    assert again[:] == bytes(SIZE)


def test_destroyed_pool_lends_nothing_and_takes_its_buffers_back() -> None:
    pool = TransientStorePool(2, SIZE)
    buffer = pool.borrow()
    assert buffer is not None
    pool.destroy()
    assert pool.borrow() is None
    pool.give_back(buffer)
    assert buffer.closed
