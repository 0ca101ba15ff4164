/* Written by nmpconv bundle: names of this bundle's interpreter in the program. A program may have several bundles,
 * with an interpreter each; a source file includes the headers of one of them.
 */
#ifndef NMP_BUNDLE
#ifdef NMP_H
#error "an nmp.h of another bundle was included before the headers of @PACKAGE@: \
leave it out, @PACKAGE@ brings its own"
#endif
#define NMP_BUNDLE @IDENTITY@u
#define NMP_BUNDLE_NAME @PACKAGE@_nmp
@NAMES@
#elif NMP_BUNDLE != @IDENTITY@u
#error "headers of @PACKAGE@ and of a bundle that was made apart: use them in two source files, \
or make one bundle of all models (nmpconv bundle a.nmp b.nmp)"
#endif
