"""Every step that a world can take, each with its name, and whether it is a fault: a module a subject.

A fault is what need not happen: END must be within reach without it.  A deadline that passes although what it waits
for is still on its way is a fault; one that passes because that was lost is not.  What a deposed master does is never
needed.
"""
