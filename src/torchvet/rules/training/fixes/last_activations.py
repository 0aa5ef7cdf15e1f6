from torchvet.rules.kit import Edits, Finding, SourceFile
def without_last(file: SourceFile, finding: Finding) -> Edits:
    return ()
