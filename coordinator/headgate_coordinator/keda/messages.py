"""The messages of KEDA's ``externalscaler.proto`` are made from the table below: no package has them."""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE: Final = "externalscaler.ExternalScaler"
_Field = descriptor_pb2.FieldDescriptorProto
_MAP: Final = "map<string, string>"
_MESSAGES: Final[dict[str, tuple[tuple[str, Any], ...]]] = {
    "ScaledObjectRef": (("name", _Field.TYPE_STRING), ("namespace", _Field.TYPE_STRING), ("scalerMetadata", _MAP)),
    "IsActiveResponse": (("result", _Field.TYPE_BOOL),),
    "MetricSpec": (
        ("metricName", _Field.TYPE_STRING), ("targetSize", _Field.TYPE_INT64), ("targetSizeFloat", _Field.TYPE_DOUBLE),
    ),
    "GetMetricSpecResponse": (("metricSpecs", ["MetricSpec"]),),
    "GetMetricsRequest": (("scaledObjectRef", "ScaledObjectRef"), ("metricName", _Field.TYPE_STRING)),
    "MetricValue": (
        ("metricName", _Field.TYPE_STRING), ("metricValue", _Field.TYPE_INT64),
        ("metricValueFloat", _Field.TYPE_DOUBLE),
    ),
    "GetMetricsResponse": (("metricValues", ["MetricValue"]),),
}  # fmt: skip
"""Fields in the order of their numbers, from 1: a type of the wire, a message's name, or a list of one."""


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="externalscaler.proto", package="externalscaler", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, of) in enumerate(fields, 1):
            many = of == _MAP or isinstance(of, list)
            label = _Field.LABEL_REPEATED if many else _Field.LABEL_OPTIONAL
            if of == _MAP:
                entry = message.nested_type.add(name="ScalerMetadataEntry", options={"map_entry": True})
                for at, part in enumerate(("key", "value"), 1):
                    entry.field.add(name=part, number=at, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
                of = f"{name}.ScalerMetadataEntry"  # noqa: PLW2901 -- a map is a list of such entries
            made = message.field.add(name=field, number=number, label=label)
            if isinstance(of, int):
                made.type = of
            else:
                made.type = _Field.TYPE_MESSAGE
                made.type_name = f".externalscaler.{of[0] if isinstance(of, list) else of}"
    return file


_POOL: Final = descriptor_pool.DescriptorPool()  # of our own: another package may have the same messages
_POOL.Add(_file())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"externalscaler.{name}"))


ScaledObjectRef: Final = _message("ScaledObjectRef")
IsActiveResponse: Final = _message("IsActiveResponse")
GetMetricSpecResponse: Final = _message("GetMetricSpecResponse")
GetMetricsRequest: Final = _message("GetMetricsRequest")
GetMetricsResponse: Final = _message("GetMetricsResponse")
