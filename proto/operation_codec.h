// The planner's list of operations to and from its message.
#pragma once

#include "common/result.h"
#include "planner/planner.h"
#include "proto/operations.pb.h"

namespace weft::proto {

// What a list from the wire may have at most; the planner's own stay far below.
inline constexpr int64_t kMostListStages = 1 << 12;      ///< and chunks of each
inline constexpr int kMostListOperations = 4096;         ///< of one class
inline constexpr int kMostListHoldings = 256;            ///< of one class
inline constexpr size_t kLongestListText = 63;           ///< characters of a name
inline constexpr int64_t kMostListCount = int64_t{1} << 40;  ///< micro-batches, ranks
inline constexpr int64_t kMostHeldBytes = int64_t{1} << 52;  ///< of one piece: all that a double holds exactly

v1::OperationList ToProto(const planner::OperationList& list);

/// The list keeps the message's texts alive by itself. Errors: kInvalidArgument naming the field, its value and what was expected:
/// another version, an unknown word of an enumeration, a number that is negative, not finite or too large, a text that is no short
/// line, a stage that does not exist, is in two classes or in none, too many classes, operations or pieces of memory.
[[nodiscard]] Result<planner::OperationList> OperationListFromProto(const v1::OperationList& message);

}  // namespace weft::proto
