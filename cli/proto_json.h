// Messages of the controller's API as JSON that scripts can compute with. Protobuf's own mapping writes 64-bit numbers as
// strings; here every number is a number. Field names are those of the .proto files; fields without presence are always
// printed, a message that is not set is left out.
#pragma once

#include <string>

namespace google::protobuf {
class Message;
}

namespace weft::cli {

/// Indented, keys in the order of the .proto file, with a final newline. Bytes that are no UTF-8 become U+FFFD.
/// Numbers that JSON lacks (infinite, not a number) become null.
std::string ToJsonText(const google::protobuf::Message& message);

}  // namespace weft::cli
