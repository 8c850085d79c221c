// SPDX-License-Identifier: Apache-2.0
// `headrace doctor`: prints what doctor_report.h finds; with --clean it also removes what dead runs left.
#include <filesystem>

#include "cli/byte_text.h"
#include "cli/commands.h"
#include "cli/doctor_report.h"
#include "cli/output.h"
#include "headrace/nvme.h"

namespace headrace::cli {

int run_doctor(const DoctorCommand& command) {
  for (const Finding& finding : examine_machine()) print("{}", finding_text(finding));
  const std::vector<std::string> paths =
      command.paths.empty() ? std::vector<std::string>{"."} : command.paths;
  bool all_usable = true;
  for (const std::string& path : paths) {
    // What is not there has nothing to clean; examine_path() says what to do.
    if (command.clean && std::filesystem::is_directory(path)) {
      for (const nvme::Leftover& leftover : nvme::find_leftovers(path)) {
        nvme::remove_leftover(leftover);
        print("removed  {} ({})\n", leftover.folder, readable_bytes(double(leftover.bytes)));
      }
    }
    for (const Finding& finding : examine_path(path)) {
      all_usable = all_usable && finding.state != FindingState::missing;
      print("{}", finding_text(finding));
    }
  }
  check_output();
  return all_usable ? kExitOk : kExitFailure;
}

}  // namespace headrace::cli
