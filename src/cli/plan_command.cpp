// SPDX-License-Identifier: Apache-2.0
// `headrace plan`: bytes per tier from the configuration alone.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/report.h"

namespace headrace::cli {

int run_plan(const PlanCommand& command) {
  const LoadedConfig loaded = load_config(command.config_path, command.sets);
  try {
    const Plan plan = plan_run(loaded.config);
    fmt::print("{}\n", command.json ? plan_json(plan) : plan_table(plan));
    check_plan(plan, engine_options_for(loaded.config));
  } catch (const ConfigError& error) {
    loaded.rethrow(error);
  }
  return kExitOk;
}

}  // namespace headrace::cli
