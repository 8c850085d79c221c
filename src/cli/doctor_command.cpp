// SPDX-License-Identifier: Apache-2.0
// `headrace doctor`: prints what doctor_report.h finds; with --clean it also removes what dead runs left.
#include <filesystem>

#include "cli/byte_text.h"
#include "cli/commands.h"
#include "cli/doctor_report.h"
#include "cli/output.h"
#include "headrace/error.h"
#include "headrace/nvme.h"

namespace headrace::cli {
namespace {

/// Removes what it can and names the rest; false when something stayed.
bool clean(const std::string& path) {
  bool all_removed = true;
  for (const nvme::Leftover& leftover : nvme::find_leftovers(path)) {
    try {
      nvme::remove_leftover(leftover);
      print("removed  {} ({})\n", leftover.folder, readable_bytes(double(leftover.bytes)));
    } catch (const Error& error) {
      print_error("{}; it stays, remove {} by hand", error.what(), leftover.folder);
      all_removed = false;
    }
  }
  return all_removed;
}

}  // namespace

int run_doctor(const DoctorCommand& command) {
  for (const Finding& finding : examine_machine()) print("{}", finding_text(finding));
  const std::vector<std::string> paths =
      command.paths.empty() ? std::vector<std::string>{"."} : command.paths;
  bool all_well = true;
  for (const std::string& path : paths) {
    // What is not there has nothing to clean; examine_path() says what to do.
    if (command.clean && std::filesystem::is_directory(path)) all_well = clean(path) && all_well;
    for (const Finding& finding : examine_path(path)) {
      all_well = all_well && finding.state != FindingState::missing;
      print("{}", finding_text(finding));
    }
  }
  check_output();
  return all_well ? kExitOk : kExitFailure;
}

}  // namespace headrace::cli
