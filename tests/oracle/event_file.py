"""An event file as TensorBoard's own package writes it, as hexadecimal text: the bytes of
tests/train/event_file_test.cpp. With a FOLDER, what TensorBoard reads in it.

    pip install tensorboard
    python3 tests/oracle/event_file.py [FOLDER]
"""
import io
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

SECONDS = 1700000000.25


def golden():
    session = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    values = [
        summary_pb2.Summary.Value(tag="loss", simple_value=2.5),
        summary_pb2.Summary.Value(tag="lr", simple_value=0.0),
    ]
    events = [
        event_pb2.Event(wall_time=SECONDS, file_version="brain.Event:2"),
        event_pb2.Event(wall_time=SECONDS, step=301, session_log=session),
        event_pb2.Event(wall_time=SECONDS, step=301, summary=summary_pb2.Summary(value=values)),
    ]
    file = io.BytesIO()
    writer = RecordWriter(file)
    for event in events:
        writer.write(event.SerializeToString())
    return file.getvalue().hex()


def show(folder):
    accumulator = EventAccumulator(folder)
    accumulator.Reload()
    for tag in accumulator.Tags()["scalars"]:
        print(tag, [(each.step, each.value) for each in accumulator.Scalars(tag)])


if len(sys.argv) > 1:
    show(sys.argv[1])
else:
    print(golden())
