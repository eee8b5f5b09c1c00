// Which algorithm a communicator of ours runs for a collective of some size: the entries of a collective table
// (netplugin/abi/collective_table.h) that fit it and that it can execute, as algorithms of the planner.
//
//   WEFT_ASSIGN_OR_RETURN(const TableChoice choice, TableChoice::Parse(getenv("WEFT_COLLECTIVES"), world));
//   const planner::AlgorithmSpec spec = choice.For(planner::Collective::kAllReduce, Bytes(4096));
//
// Entries for NCCL's own algorithms (NVLS, CollNet, PAT), and those for a collective that ours has no schedule for (an
// all-gather by tree), are passed over, as the grammar says. Protocol and channels say nothing here: there is one protocol,
// and a channel per pair of ranks.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "common/units.h"
#include "netplugin/abi/collective_table.h"
#include "planner/collectives/algorithm.h"

namespace weft::collectives {

class TableChoice {
 public:
  /// Rings for everything.
  TableChoice() = default;

  /// For a communicator over all ranks, 0 to world - 1; an empty text is no table. Errors: kInvalidArgument for a text with
  /// any mistake, naming its offset and what was expected, or for a parameter that does not fit so many ranks: as all
  /// ranks have one table, all refuse it.
  [[nodiscard]] static Result<TableChoice> Parse(std::string_view text, int world);

  /// The ring where no entry fits. `bytes`: of the full buffer.
  planner::AlgorithmSpec For(planner::Collective collective, Bytes bytes) const;

  /// No entry that could be run.
  bool empty() const { return table_.count == 0; }

 private:
  abi::CollectiveTable table_;   // only what can be run
  int world_ = 1;
  uint64_t members_ = 0;
};

}  // namespace weft::collectives
