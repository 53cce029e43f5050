"""The chains of an index file, followed entry by entry. Plain twin: format.chains."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from penstock._native.endian cimport get32, put32

cdef enum:
    ENTRY = 20


def check_chain(uint8_t[::1] heads not None, const uint8_t[::1] entries not None, int32_t first_number, int32_t slots):
    """Follow the chains of an index file over a piece of its entries, which begin with number `first_number`.

    `heads` are `slots` numbers in the file's own byte order, as they were before these entries; they are moved on.
    Gives (entry number, what) of each fault, at most 100.
    """
    cdef Py_ssize_t i, count = entries.shape[0] // ENTRY
    cdef const uint8_t* e
    cdef uint8_t* head
    cdef int32_t hashed, previous
    cdef list faults = []
    if heads.shape[0] < 4 * <int64_t> slots or slots < 1:
        raise ValueError("one head for each slot")
    for i in range(count):
        e = &entries[0] + i * ENTRY
        hashed = get32(e)
        if hashed < 0:
            if len(faults) < 100:
                faults.append((first_number + i, f"has the negative hash {hashed}"))
            continue
        head = &heads[0] + 4 * <int64_t> (hashed % slots)
        previous = get32(e + 16)
        if previous != get32(head) and len(faults) < 100:
            faults.append((first_number + i, f"is chained to entry {previous} instead of {get32(head)}"))
        put32(head, first_number + <int32_t> i)
    return faults


def differing_slots(const uint8_t[::1] heads not None, const uint8_t[::1] slots not None, Py_ssize_t limit=100):
    """(slot, expected, found) where two tables of slot heads differ, and how many slots are used in the first."""
    cdef Py_ssize_t i, count = min(heads.shape[0], slots.shape[0]) // 4, used = 0
    cdef list found = []
    for i in range(count):
        if get32(&heads[0] + 4 * i) != 0:
            used += 1
        if get32(&heads[0] + 4 * i) != get32(&slots[0] + 4 * i) and len(found) < limit:
            found.append((i, get32(&heads[0] + 4 * i), get32(&slots[0] + 4 * i)))
    return found, used
