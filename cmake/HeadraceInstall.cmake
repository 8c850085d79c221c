# SPDX-License-Identifier: Apache-2.0
# Install and export: find_package(headrace) gives headrace::headrace.
