#!/usr/bin/env python3
"""What the GPU test reads segments with, against the built library and without a GPU.

usage: telemetry_test.py TRANSFER_PROGRAM LIBRARY
"""
import os
import subprocess
import sys
import tempfile
import unittest

import telemetry

PROGRAM, LIBRARY = sys.argv[1:3]
MESSAGES, BYTES = 20000, 2000


class SegmentTest(unittest.TestCase):
    def test_reads_what_the_library_wrote(self):
        with tempfile.TemporaryDirectory(prefix="weft-gpu-") as run_dir:
            agent = telemetry.Agent(run_dir)
            environment = dict(os.environ, WEFT_RUN_DIR=run_dir, WEFT_RANK="3", WEFT_WORLD="8", NCCL_SOCKET_IFNAME="lo",
                               WEFT_TRANSPORT="tcp")
            subprocess.run([PROGRAM, LIBRARY, str(MESSAGES), str(BYTES)], check=True, env=environment, timeout=60)
            agent.close()
        self.assertEqual(len(agent.segments), 1)
        segment = agent.segments[0]
        process = segment.process()
        self.assertEqual((process["rank"], process["world"], process["net_version"]), (3, 8, 12))
        for direction in (0, 1):
            flows = [flow for flow in segment.flows() if flow["direction"] == direction]
            self.assertEqual(flows, [{"direction": direction, "messages": MESSAGES, "bytes": MESSAGES * BYTES}])
        self.assertEqual(segment.communicators(), [])
        _, size, entries = segment.sections[telemetry.COMMUNICATORS]
        self.assertEqual((size, entries), (telemetry.COMMUNICATOR_BYTES, 64))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
