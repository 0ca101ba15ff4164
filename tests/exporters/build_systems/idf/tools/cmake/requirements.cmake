# The first reading of a component, as a script: commands that need a project are errors.
macro(idf_component_register)
  return()
endmacro()
include(${COMPONENT}/CMakeLists.txt)
