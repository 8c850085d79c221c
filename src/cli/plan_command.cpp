// SPDX-License-Identifier: Apache-2.0
// `headrace plan`: bytes per tier from the configuration alone.
#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/output.h"
#include "cli/report.h"

namespace headrace::cli {

namespace {

/// A plan is made before there is a machine for it: what this machine's drives lack is only a note.
void check_budgets(const Plan& plan, const EngineOptions& options) {
  try {
    check_plan(plan, options);
  } catch (const IoError& error) {
    print_error("note: {}", error.what());
  } catch (const OutOfMemory& error) {
    if (error.tier != tier_name(Tier::nvme)) throw;
    print_error("note: {}", error.what());
  }
}

}  // namespace

int run_plan(const PlanCommand& command) {
  const LoadedConfig loaded = load_config(command.config_path, command.sets);
  try {
    const Plan plan = plan_run(loaded.config);
    print("{}\n", command.json ? plan_json(plan) : plan_table(plan));
    check_output();
    check_budgets(plan, engine_options_for(loaded.config));
  } catch (const ConfigError& error) {
    loaded.rethrow(error);
  }
  return kExitOk;
}

}  // namespace headrace::cli
