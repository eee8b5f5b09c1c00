"""The agent's end of the plugin's socket, as far as a test needs it: takes the telemetry segments of the processes that
connect and reads what the net, tuner and profiler faces wrote. Layouts: netplugin/abi/segment.h and observations.h."""

import mmap
import os
import socket
import struct
import threading

SOCKET_MAGIC, HELLO = 0x54465741, 1
TELEMETRY_MAGIC = 0x4C544657
PROCESS, FLOWS, COMMUNICATORS = 1, 2, 16
OPERATIONS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce", "p2p")
ALGORITHMS = ("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
WAITS = ("send_gpu", "send_peer", "send_wire", "receive", "receive_flush", "receive_gpu")
COMMUNICATOR_BYTES, COUNTERS_AT, RECENT_AT, RECORD_BYTES, RECENT = 4672, 168, 1320, 104, 32


def name(names, index):
    return names[index] if index < len(names) else None


class Segment:
    """One process's telemetry, mapped."""

    def __init__(self, descriptor):
        self.memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size, prot=mmap.PROT_READ)
        magic, self.version, _, count, _ = struct.unpack_from("<IIQII", self.memory, 0)
        if magic != TELEMETRY_MAGIC or count > 8:
            raise ValueError(f"telemetry segment: magic {magic:#x} with {count} sections")
        self.sections = {}
        for i in range(count):
            kind, _, offset, entry_bytes, entries = struct.unpack_from("<IIQII", self.memory, 24 + 24 * i)
            self.sections[kind] = (offset, entry_bytes, entries)

    def process(self):
        offset, _, _ = self.sections[PROCESS]
        pid, rank, world, net_version = struct.unpack_from("<iiii", self.memory, offset + 64)
        return {"pid": pid, "rank": rank, "world": world, "net_version": net_version}

    def slots(self):
        """Where each flow's slot is that was ever taken; others are left alone, since looking at them takes memory for them."""
        offset, size, entries = self.sections.get(FLOWS, (0, 1, 0))
        if self.version >= 3:
            entries = min(entries, struct.unpack_from("<I", self.memory, self.sections[PROCESS][0] + 104)[0])
        return range(offset, offset + size * entries, size)

    def flows(self):
        """Payload bytes and messages of every flow that was ever opened."""
        result = []
        for at in self.slots():
            state, generation = struct.unpack_from("<II", self.memory, at)
            if state == 0 or generation % 2:
                continue
            messages, payload = struct.unpack_from("<QQ", self.memory, at + 128)
            result.append({"direction": struct.unpack_from("<I", self.memory, at + 24)[0], "messages": messages,
                           "bytes": payload})
        return result

    def communicators(self):
        offset, size, entries = self.sections[COMMUNICATORS]
        if size != COMMUNICATOR_BYTES:
            raise ValueError(f"communicator slots of {size} bytes, expected {COMMUNICATOR_BYTES}")
        found = (self._communicator(offset + i * size) for i in range(entries))
        return [each for each in found if each]

    def _communicator(self, at):
        state, generation, comm, rank, ranks, nodes = struct.unpack_from("<IIQiii", self.memory, at)
        if state == 0 or generation % 2:
            return None
        table, decided, left, digest, overridden, profile = struct.unpack_from("<QQQQII", self.memory, at + 64)
        waits = struct.unpack_from("<6Q", self.memory, at + 104)
        finished_total = struct.unpack_from("<Q", self.memory, at + 160)[0]
        counters = {}
        for i, operation in enumerate(OPERATIONS):
            started, finished, last_started, last_finished = struct.unpack_from("<QQQQ", self.memory,
                                                                                at + COUNTERS_AT + 64 * i)
            counters[operation] = {"started": started, "finished": finished, "last_started": last_started,
                                   "last_finished": last_finished}
        recent = [self._record(at + RECENT_AT + (i % RECENT) * RECORD_BYTES)
                  for i in range(max(0, finished_total - RECENT), finished_total)]
        return {"comm": comm, "rank": rank, "ranks": ranks, "nodes": nodes, "table_digest": table, "decided": decided,
                "left": left, "decision_digest": digest, "overridden": overridden, "profile": profile,
                "waits_s": {w: ns * 1e-9 for w, ns in zip(WAITS, waits)}, "operations": counters, "recent": recent}

    def _record(self, at):
        sequence, start, end, size, kernel = struct.unpack_from("<5Q", self.memory, at)
        operation, algorithm, protocol, channels = struct.unpack_from("<4I", self.memory, at + 40)
        return {"sequence": sequence, "seconds": (end - start) * 1e-9, "bytes": size, "kernel_s": kernel * 1e-9,
                "operation": name(OPERATIONS, operation), "algorithm": name(ALGORITHMS, algorithm),
                "protocol": name(PROTOCOLS, protocol), "channels": channels}


class Agent:
    """Listens on RUN_DIR/agent.sock until close(); the segments stay readable after their processes have ended."""

    def __init__(self, run_dir):
        self.path = os.path.join(run_dir, "agent.sock")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.segments, self.connections = [], []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return  # closed
            message, descriptors, _, _ = socket.recv_fds(connection, 4096, 4)
            try:
                magic, _, kind = struct.unpack_from("<IHH", message)
                if magic == SOCKET_MAGIC and kind == HELLO and descriptors:
                    self.segments.append(Segment(descriptors[0]))
                    self.connections.append(connection)  # a plugin whose agent is gone would come back
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for connection in self.connections:
            connection.close()
        os.unlink(self.path)
