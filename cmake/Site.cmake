# `site`: the pages as a site, in site/site of the build folder. `docs`: that and the C++ reference. Neither is
# part of an ordinary build; without MkDocs the target says what to install.
find_program(SAPE2_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(SAPE2_PYTHON python3)
add_custom_target(
  site
  COMMAND ${SAPE2_PYTHON} "${PROJECT_SOURCE_DIR}/docs/site/build.py" "${PROJECT_BINARY_DIR}/site"
  COMMENT "The pages as a site: ${PROJECT_BINARY_DIR}/site/site/index.html"
  VERBATIM)
add_custom_target(docs DEPENDS site)
if(TARGET reference)
  add_dependencies(docs reference)
endif()
